/*
 * gpu_image.c: grey images of 8 bits from PGM, PPM and PNG, and to PGM and PNG. What a file says of its size is checked
 * against what a job can have, and against the file's own length, before anything is allocated for it.
 */
#include "ctl/ctl.h"

#include <fcntl.h>
#include <png.h>
#include <stdlib.h>
#include <unistd.h>

#include "rdmad/gpu.h"

#define FILE_MAX GIB
#define CHUNK (64 * KIB)
#define PNG_SIGNATURE 8
#define DEFLATE_MOST 1032 /* bytes from one that is compressed */

/* NULL, or why an image of that size is none for a job. */
static const char *size_wrong(uint64_t width, uint64_t height)
{
	if (!width || !height)
		return "it has no pixels";
	if (width > RDMAD_GPU_SIZE_MAX || height > RDMAD_GPU_SIZE_MAX || width * height > RDMAD_GPU_SIZE_MAX)
		return "it has more than 64 Mi pixels";
	return NULL;
}

static const char *make_pixels(struct image *image, uint64_t width, uint64_t height)
{
	const char *wrong = size_wrong(width, height);

	if (wrong)
		return wrong;
	image->width = (uint32_t)width;
	image->height = (uint32_t)height;
	image->pixels = malloc(width * height);
	return image->pixels ? NULL : "there is no memory for it";
}

/*
 * PGM: "P5" or "P2", width, height and the largest value as text, then bytes, or text. PPM: "P6" or "P3", and three
 * values a pixel.
 */
struct pgm {
	const uint8_t *at, *end;
};

static bool is_blank(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Skip blanks, and comments from # to the end of the line. */
static void skip_blanks(struct pgm *pgm)
{
	bool comment = false;

	for (; pgm->at < pgm->end && (comment || is_blank(*pgm->at) || *pgm->at == '#'); pgm->at++) {
		if (*pgm->at == '#')
			comment = true;
		else if (*pgm->at == '\n' || *pgm->at == '\r')
			comment = false;
	}
}

/* Read the next number, 0 to 999,999,999; -1: there is none. */
static int64_t next_number(struct pgm *pgm)
{
	int64_t number = -1;

	skip_blanks(pgm);
	for (; pgm->at < pgm->end && *pgm->at >= '0' && *pgm->at <= '9'; pgm->at++) {
		number = MAX(number, 0) * 10 + (*pgm->at - '0');
		if (number > 999999999)
			return -1;
	}
	return number;
}

/* Luma of ITU-R BT.709, rounded: (2126 red + 7152 green + 722 blue) / 10000. */
static uint8_t grey_of(const uint8_t *rgb)
{
	return (uint8_t)((2126u * rgb[0] + 7152u * rgb[1] + 722u * rgb[2] + 5000u) / 10000u);
}

static const char *pgm_samples(struct pgm *pgm, const struct image *image, bool text, bool colour, uint64_t most)
{
	size_t pixels = (size_t)image->width * image->height;
	uint8_t sample[3];

	for (size_t i = 0; i < pixels; i++) {
		for (unsigned c = 0; c < (colour ? 3 : 1); c++) {
			int64_t value = text ? next_number(pgm) : *pgm->at++; /* the bytes are there */

			if (!text && most > 255)
				value = value << 8 | *pgm->at++;
			if (value < 0 || (uint64_t)value > most)
				return "a pixel is missing, or over the largest value";
			/* In 8 bits, rounded. */
			sample[c] =
				(uint8_t)(most == 255 ? (uint64_t)value : ((uint64_t)value * 255 + most / 2) / most);
		}
		image->pixels[i] = colour ? grey_of(sample) : sample[0];
	}
	skip_blanks(pgm);
	if (pgm->end - pgm->at > 2 && pgm->at[0] == 'P' && pgm->at[1] >= '1' && pgm->at[1] <= '7' &&
	    is_blank(pgm->at[2]))
		return "it has several images, one behind the other; give one";
	return NULL;
}

static const char *parse_pgm(const uint8_t *data, size_t len, struct image *image)
{
	struct pgm pgm = {data + 2, data + len};
	bool text = data[1] < '4', colour = data[1] == '3' || data[1] == '6';
	int64_t width = next_number(&pgm), height = next_number(&pgm), most = next_number(&pgm);
	const char *wrong;
	uint64_t least;

	if (width < 0 || height < 0 || most < 1 || most > 65535)
		return "its head is not: width, height, largest value (1 to 65535)";
	wrong = size_wrong((uint64_t)width, (uint64_t)height);
	if (wrong)
		return wrong;
	if (pgm.at < pgm.end && *pgm.at == '#') /* a comment, whose line feed is the blank */
		while (pgm.at < pgm.end && *pgm.at != '\n' && *pgm.at != '\r')
			pgm.at++;
	if (pgm.at == pgm.end || !is_blank(*pgm.at))
		return "there is no blank behind its head";
	pgm.at++;
	/* A digit and a blank for each but the last, which needs no blank. */
	least = (uint64_t)width * (uint64_t)height * (colour ? 3 : 1) * (text || most > 255 ? 2 : 1) - text;
	if ((uint64_t)(pgm.end - pgm.at) < least)
		return "it is cut off: there are fewer pixels than its head says";
	wrong = make_pixels(image, (uint64_t)width, (uint64_t)height);
	return wrong ? wrong : pgm_samples(&pgm, image, text, colour, (uint64_t)most);
}

/*
 * PNG, by libpng, which leaves by longjmp where something is wrong: what is to be freed is in this struct.
 */
struct png_file {
	png_structp png;
	png_infop info;
	const uint8_t *at, *end; /* of what is read */
	uint8_t *samples;
	char wrong[160];
};

static void png_gave_up(png_structp png, png_const_charp text)
{
	struct png_file *file = png_get_error_ptr(png);

	snprintf(file->wrong, sizeof(file->wrong), "%s", text);
	png_longjmp(png, 1);
}

static void png_warns(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

static void png_read_bytes(png_structp png, png_bytep to, size_t n)
{
	struct png_file *file = png_get_io_ptr(png);

	if ((size_t)(file->end - file->at) < n)
		png_error(png, "it is cut off");
	memcpy(to, file->at, n);
	file->at += n;
}

/* Read rows of samples of 8 bits: grey, or red, green and blue, of which grey is made; transparency is left out. */
static void png_decode(struct png_file *file, struct image *image)
{
	png_structp png = file->png;
	uint32_t width, height;
	const char *wrong;
	uint64_t least;
	size_t row, pixels;
	unsigned channels;
	const uint8_t *from;
	int passes;

	png_read_info(png, file->info);
	width = png_get_image_width(png, file->info);
	height = png_get_image_height(png, file->info);
	wrong = size_wrong(width, height);
	if (wrong)
		png_error(png, wrong);
	/* Its samples, and a byte in front of each row. */
	least = (uint64_t)width * height * png_get_channels(png, file->info) * png_get_bit_depth(png, file->info) / 8 +
		height;
	if (least / DEFLATE_MOST > (uint64_t)(file->end - file->at))
		png_error(png, "it is cut off: there are fewer bytes than its size needs");
	png_set_expand(png);
	png_set_scale_16(png);
	png_set_strip_alpha(png);
	passes = png_set_interlace_handling(png);
	png_read_update_info(png, file->info);
	row = png_get_rowbytes(png, file->info);
	file->samples = malloc(row * height);
	if (!file->samples)
		png_error(png, "there is no memory for it");
	for (int pass = 0; pass < passes; pass++)
		for (uint32_t y = 0; y < height; y++)
			png_read_row(png, file->samples + y * row, NULL);
	wrong = make_pixels(image, width, height);
	if (wrong)
		png_error(png, wrong);
	channels = png_get_channels(png, file->info);
	pixels = (size_t)width * height;
	from = file->samples;
	for (size_t i = 0; i < pixels; i++, from += channels)
		image->pixels[i] = channels == 1 ? from[0] : grey_of(from);
}

/* Decode between setjmp and longjmp, in a function of its own, so that no local variable changes between them. */
static int png_try_read(struct png_file *file, struct image *image)
{
	if (setjmp(png_jmpbuf(file->png)))
		return -EPROTO;
	png_set_user_limits(file->png, RDMAD_GPU_SIZE_MAX, RDMAD_GPU_SIZE_MAX);
	png_set_chunk_malloc_max(file->png, 8 * MIB);
	png_set_chunk_cache_max(file->png, 128);
	png_set_read_fn(file->png, file, png_read_bytes);
	png_decode(file, image);
	return 0;
}

static const char *parse_png(const uint8_t *data, size_t len, struct image *image, char *why, size_t why_size)
{
	struct png_file file = {.at = data, .end = data + len, .wrong = "there is no memory for it"};
	int rc = -ENOMEM;

	file.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &file, png_gave_up, png_warns);
	if (file.png)
		file.info = png_create_info_struct(file.png);
	if (file.info)
		rc = png_try_read(&file, image);
	png_destroy_read_struct(&file.png, &file.info, NULL);
	free(file.samples);
	if (rc == 0)
		return NULL;
	snprintf(why, why_size, "%s", file.wrong);
	return why;
}

const char *image_parse(const void *data, size_t len, struct image *image, char *why, size_t why_size)
{
	const uint8_t *bytes = data;
	const char *wrong;

	*image = (struct image){0};
	if (len >= PNG_SIGNATURE && !png_sig_cmp(bytes, 0, PNG_SIGNATURE))
		wrong = parse_png(bytes, len, image, why, why_size);
	else if (len > 2 && bytes[0] == 'P' && memchr("2356", bytes[1], 4))
		wrong = parse_pgm(bytes, len, image);
	else if (len > 2 && bytes[0] == 'P' && memchr("147", bytes[1], 3) && is_blank(bytes[2]))
		wrong = bytes[1] == '7' ? "it is a PAM (P7), which is not read; PGM, PPM and PNG are"
					: "it is a PBM (P1, P4), which is not read; PGM, PPM and PNG are";
	else
		wrong = "it is none of PGM (P5, P2), PPM (P6, P3) and PNG";
	if (wrong)
		image_release(image);
	return wrong;
}

void image_release(struct image *image)
{
	free(image->pixels);
	*image = (struct image){0};
}

/*
 * Files
 */
static int read_some(int fd, uint8_t **data, size_t *len, size_t *room)
{
	ssize_t n;

	if (*len == *room) {
		size_t more = MAX(2 * *room, (size_t)CHUNK);
		uint8_t *grown = more > FILE_MAX ? NULL : realloc(*data, more);

		if (!grown)
			return more > FILE_MAX ? -EFBIG : -ENOMEM;
		*data = grown;
		*room = more;
	}
	n = read(fd, *data + *len, *room - *len);
	if (n < 0)
		return errno == EINTR ? 1 : -errno;
	*len += (size_t)n;
	return n > 0;
}

static int read_all(const char *path, uint8_t **data, size_t *len)
{
	int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	size_t room = 0;
	int rc;

	*data = NULL;
	*len = 0;
	if (fd < 0)
		return -errno;
	do
		rc = read_some(fd, data, len, &room);
	while (rc == 1);
	if (fd != STDIN_FILENO)
		close(fd);
	return rc;
}

int image_read(const char *path, struct image *image)
{
	const char *name = strcmp(path, "-") == 0 ? "standard input" : path, *wrong;
	uint8_t *data;
	char why[160];
	size_t len;
	int rc = read_all(path, &data, &len);

	if (rc != 0) {
		free(data);
		ctl_say("%s: cannot read %s: %s", ctl_command_name(), name, strerror(-rc));
		return CTL_FAILED;
	}
	wrong = image_parse(data, len, image, why, sizeof(why));
	free(data);
	if (!wrong)
		return CTL_OK;
	ctl_say("%s: %s is no image: %s", ctl_command_name(), name, wrong);
	return CTL_FAILED;
}

static int png_try_write(struct png_file *file, FILE *out, const struct image *image)
{
	if (setjmp(png_jmpbuf(file->png)))
		return errno ? -errno : -EIO;
	png_init_io(file->png, out);
	png_set_IHDR(file->png, file->info, image->width, image->height, 8, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
		     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
	png_write_info(file->png, file->info);
	for (uint32_t y = 0; y < image->height; y++)
		png_write_row(file->png, image->pixels + (size_t)y * image->width);
	png_write_end(file->png, NULL);
	return 0;
}

bool image_format_known(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return !strchr(name, '.') || ctl_file_ends(name, ".png") || ctl_file_ends(name, ".pgm");
}

int image_write(const char *path, const struct image *image)
{
	bool to_stdout = strcmp(path, "-") == 0;
	FILE *out = to_stdout ? stdout : fopen(path, "we");
	size_t pixels = (size_t)image->width * image->height;
	struct png_file file = {.png = NULL};
	int rc = out ? 0 : -errno;

	if (rc == 0 && ctl_file_ends(path, ".png")) {
		errno = 0;
		file.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &file, png_gave_up, png_warns);
		if (file.png)
			file.info = png_create_info_struct(file.png);
		rc = file.info ? png_try_write(&file, out, image) : -ENOMEM;
		png_destroy_write_struct(&file.png, &file.info);
	} else if (rc == 0) {
		fprintf(out, "P5\n%u %u\n255\n", image->width, image->height);
		rc = fwrite(image->pixels, 1, pixels, out) == pixels ? 0 : -errno;
	}
	if (out && (to_stdout ? fflush(out) : fclose(out)) != 0 && rc == 0)
		rc = -errno;
	if (rc == 0)
		return CTL_OK;
	ctl_say("%s: cannot write %s: %s", ctl_command_name(), to_stdout ? "standard output" : path, strerror(-rc));
	return CTL_FAILED;
}
