/* check_gpu_image.c: images from and to PGM and PNG, good ones and others. */
#include <check.h>
#include <png.h>
#include <stdlib.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "tests/suite.h"

static const char *parse(const void *data, size_t len, struct image *image)
{
	static char why[160];

	return image_parse(data, len, image, why, sizeof(why));
}

static void assert_pgm(const char *text, size_t len, uint32_t width, uint32_t height, const char *pixels)
{
	struct image image;
	const char *wrong = parse(text, len, &image);

	ck_assert_msg(!wrong, "%s: %s", text, wrong);
	ck_assert_uint_eq(image.width, width);
	ck_assert_uint_eq(image.height, height);
	ck_assert_mem_eq(image.pixels, pixels, (size_t)width * height);
	image_release(&image);
	ck_assert_ptr_null(image.pixels);
}

#define PGM(text, width, height, pixels) assert_pgm(text, sizeof(text) - 1, width, height, pixels)

START_TEST(test_pgm)
{
	PGM("P5 2 1 255\nab", 2, 1, "ab");
	PGM("P5\n# a comment 7\n2#another\n 2\t255 abcd", 2, 2, "abcd");
	PGM("P5 2 1 255\nabmore", 2, 1, "ab");
	PGM("P5 3 1 1\n\0\1\0", 3, 1, "\0\377\0");
	PGM("P5 3 1 100\n\0\62\144", 3, 1, "\0\200\377");
	PGM("P5 2 1 65535\n\200\0\377\377", 2, 1, "\200\377");
	PGM("P5 2 1 256\n\0\200\1\0", 2, 1, "\200\377");
	PGM("P2 3 1 15 0 15 7", 3, 1, "\0\377\167");
	PGM("P2\n2 2\n255\n1 2\n# between\n3 4\n", 2, 2, "\1\2\3\4");
	PGM("P5 2 1 255# directly behind\nab", 2, 1, "ab");
	PGM("P2 2 1 255# directly behind\n1 2", 2, 1, "\1\2");
	PGM("P5 2 1 255\nabP5", 2, 1, "ab"); /* no head of another image */
	PGM("P6 2 1 255\nabcddd", 2, 1, "bd");
	PGM("P6 1 1 65535\n\200\0\200\0\200\0", 1, 1, "\200");
	PGM("P3 2 1 255\n255 0 0 # red\n0 255 0", 2, 1, "\66\266");
}
END_TEST

START_TEST(test_bad_pgm)
{
	static const char *const bad[] = {
		"",
		"P",
		"P5",
		"P6 1 1 255 ab",
		"P3 1 1 255 1 2",
		"P3 1 1 255 1 2 256",
		"P1 1 1 1",
		"P4 1 1 a",
		"P5 1 1 255# no line feed",
		"P5 1",
		"P5 1 1",
		"P5 1 1 255",
		"P5 1 1 255\n",
		"P5 2 2 255\nabc",
		"P5 0 1 255\na",
		"P5 1 0 255\na",
		"P5 1 1 0\na",
		"P5 1 1 65536\naa",
		"P5 -1 1 255\na",
		"P5 1 1 255a",
		"P5 1 1 3\n\4",
		"P5 1 1 300\n\2\2",
		"P5 1000000 1000000 255\n",
		"P5 67108865 1 255\n",
		"P5 99999999999999999999 1 255\n",
		"P5 65536 65536 255\n",
		"P2 1 1 255",
		"P2 1 1 255 ",
		"P2 2 1 255 1",
		"P2 2 1 255 1 x",
		"P2 1 1 255 256",
		"P2 3 1 255 1 2 ",
		"P2 8192 8192 255 1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct image image;

		ck_assert_msg(parse(bad[i], strlen(bad[i]), &image), "%s", bad[i]);
		ck_assert_ptr_null(image.pixels);
	}
}
END_TEST

/*
 * PNG, written by libpng's simple interface
 */
struct png_bytes {
	uint8_t *data;
	png_alloc_size_t len;
};

static struct png_bytes make_png(uint32_t width, uint32_t height, uint32_t format, const void *pixels)
{
	png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = format};
	struct png_bytes png = {.data = malloc(1 << 20), .len = 1 << 20};

	ck_assert(png_image_write_to_memory(&image, png.data, &png.len, 0, pixels, 0, NULL));
	return png;
}

static void assert_png(uint32_t format, const void *pixels, const char *want)
{
	struct png_bytes png = make_png(2, 2, format, pixels);
	struct image image;
	const char *wrong = parse(png.data, png.len, &image);

	ck_assert_msg(!wrong, "%s", wrong);
	ck_assert_uint_eq(image.width, 2);
	ck_assert_uint_eq(image.height, 2);
	ck_assert_mem_eq(image.pixels, want, 4);
	image_release(&image);
	free(png.data);
}

START_TEST(test_png)
{
	static const uint8_t grey[] = {0, 1, 128, 255}, alpha[] = {0, 9, 1, 9, 128, 0, 255, 255};
	static const uint8_t rgb[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
	static const uint8_t rgba[] = {255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 255, 255, 255, 255};

	assert_png(PNG_FORMAT_GRAY, grey, "\0\1\200\377");
	assert_png(PNG_FORMAT_GA, alpha, "\0\1\200\377");
	assert_png(PNG_FORMAT_RGB, rgb, "\66\266\22\377"); /* 54, 182, 18: 0.2126, 0.7152, 0.0722 of 255 */
	assert_png(PNG_FORMAT_RGBA, rgba, "\66\266\22\377");
}
END_TEST

/* Of 16 bits, interlaced: by the other interface. */
START_TEST(test_png_interlaced)
{
	static const uint8_t rows[3][6] = {{0, 0, 128, 128, 255, 255}, {1, 1, 2, 2, 3, 3}, {0, 200, 1, 0, 254, 127}};
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	png_bytep row[3] = {(png_bytep)rows[0], (png_bytep)rows[1], (png_bytep)rows[2]};
	FILE *file = tmpfile();
	uint8_t bytes[1000];
	struct image image;
	size_t len;

	png_init_io(png, file);
	png_set_IHDR(png, info, 3, 3, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_ADAM7, 0, 0);
	png_write_info(png, info);
	png_write_image(png, row);
	png_write_end(png, NULL);
	png_destroy_write_struct(&png, &info);
	rewind(file);
	len = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	ck_assert_ptr_null(parse(bytes, len, &image));
	ck_assert_uint_eq(image.width, 3);
	ck_assert_mem_eq(image.pixels, "\0\200\377\1\2\3\1\1\376", 9); /* 0x00c8 / 257 is 0.78 */
	image_release(&image);
}
END_TEST

/* Cut off anywhere, or with any byte changed, it is refused or read, and nothing worse. */
START_TEST(test_bad_png)
{
	static const uint8_t rgb[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	/* 1 x 67,108,864 of 8 bits, and nothing in it. */
	static const uint8_t narrow[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0,    0, 0, 13,
					 'I',  'H', 'D', 'R', 0,    0,    0,    1,    4,    0, 0, 0,
					 8,    0,   0,   0,   0,    0xac, 0xce, 0x19, 0xfc, 0, 0, 0,
					 0,    'I', 'D', 'A', 'T',  0x35, 0xaf, 6,    0x1e, 0, 0, 0,
					 0,    'I', 'E', 'N', 'D',  0xae, 0x42, 0x60, 0x82};
	struct png_bytes png = make_png(2, 2, PNG_FORMAT_RGB, rgb);
	struct image image;

	for (size_t cut = 0; cut + 12 < png.len; cut++) /* without the last chunk the image is there */
		ck_assert(parse(png.data, cut, &image));
	for (size_t i = 0; i < png.len; i++) {
		png.data[i] ^= 0xff;
		if (!parse(png.data, png.len, &image))
			image_release(&image);
		png.data[i] ^= 0xff;
	}
	/* A size for which the file is too short, too. */
	ck_assert_str_eq(parse(narrow, sizeof(narrow), &image),
			 "it is cut off: there are fewer bytes than its size needs");
	/* A size that no job can have is seen before anything is made for it. */
	memset(png.data + 16, 0x7f, 8);
	ck_assert(parse(png.data, png.len, &image));
	free(png.data);
}
END_TEST

/* What is wrong is told by name, where a program might make such files. */
START_TEST(test_refused)
{
	static const struct {
		const char *file, *wrong;
	} bad[] = {
		{"P5 1 1 255\naP5 1 1 255\nb", "several images"},
		{"P2 1 1 255 7\nP2 1 1 255 8\n", "several images"},
		{"P4 8 1 a", "PBM"},
		{"P1 1 1 1", "PBM"},
		{"P7\nWIDTH 1\n", "PAM"},
		{"GIF89a", "none of PGM"},
	};
	struct image image;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *wrong = parse(bad[i].file, strlen(bad[i].file), &image);

		ck_assert_msg(wrong && strstr(wrong, bad[i].wrong), "%s: %s", bad[i].file, wrong);
	}
}
END_TEST

START_TEST(test_files)
{
	static const char *const suffixes[] = {".pgm", ".png", ".PNG", ""};
	uint8_t pixels[35];
	struct image image = {7, 5, pixels}, back;
	char dir[] = "/tmp/check-gpu-image.XXXXXX", path[64];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	for (size_t i = 0; i < sizeof(pixels); i++)
		pixels[i] = (uint8_t)(i * 7);
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		uint8_t magic = 0;
		FILE *file;

		snprintf(path, sizeof(path), "%s/image%s", dir, suffixes[i]);
		ck_assert_int_eq(image_write(path, &image), CTL_OK);
		ck_assert_int_eq(image_read(path, &back), CTL_OK);
		ck_assert_uint_eq(back.width, 7);
		ck_assert_uint_eq(back.height, 5);
		ck_assert_mem_eq(back.pixels, pixels, 35);
		image_release(&back);
		file = fopen(path, "r");
		ck_assert_uint_eq(fread(&magic, 1, 1, file), 1);
		ck_assert_uint_eq(magic, strcasecmp(suffixes[i], ".png") == 0 ? 0x89 : 'P');
		fclose(file);
		unlink(path);
	}
	ck_assert_int_eq(image_read(dir, &back), CTL_FAILED);
	rmdir(dir);
	ck_assert_int_eq(image_read(path, &back), CTL_FAILED);
	ck_assert_int_eq(image_write(path, &image), CTL_FAILED);
	ck_assert_int_eq(image_write("/dev/full", &image), CTL_FAILED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gpu image");
	TCase *tcase = suite_case(suite, "gpu image", NULL, NULL);

	tcase_add_test(tcase, test_pgm);
	tcase_add_test(tcase, test_bad_pgm);
	tcase_add_test(tcase, test_png);
	tcase_add_test(tcase, test_png_interlaced);
	tcase_add_test(tcase, test_bad_png);
	tcase_add_test(tcase, test_refused);
	tcase_add_test(tcase, test_files);
	return suite_run(suite);
}
