/*
 * input.c: a segment's records in order. The file is read in large pieces, past the page cache, for which a machine has
 * to find memory only to have it copied from there; the next ones while this one is looked through.
 */
#include "wal/internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#define READ_MOST (4 * MIB)
#define WANT_MOST (FORMAT_WHOLE_MAX + 2 * WAL_BLOCK) /* a record with a value that is not long */
#define MARGIN (WANT_MOST + WAL_BLOCK)               /* of a room, in front of what is read: as much as may be left */
_Static_assert(sizeof(struct format_record) + WAL_KEY_MAX + FORMAT_GAP <= 2 * WAL_BLOCK, "it is read in one piece");

static int input_failed(const struct input *input, uint64_t at, int rc)
{
	return log_fail(rc, ROOM, "%s: reading at %" PRIu64 " failed: %s", input->path, at, strerror(-rc));
}

/* The piece that comes so many behind the one in the buffer. */
static unsigned char *room_behind(const struct input *input, unsigned n)
{
	return input->room[(input->current + n) % ARRAY_SIZE(input->room)] + MARGIN;
}

void input_settle(struct input *input)
{
	ahead_drop(&input->ahead);
}

/* From the block of `at` on, what is in the buffer stays, in front of what is read. */
int input_fill(struct input *input, size_t want)
{
	uint64_t end = input->buffer_at + input->have, begin = block_of(input->at);
	struct iovec iov = {room_behind(input, 1), input->piece};
	size_t left = 0, least;
	ssize_t got;

	if (input->at >= input->buffer_at && input->at + want <= end)
		return 0;
	must(want <= WANT_MOST && input->at + want <= input->limit);
	if (begin >= input->buffer_at && begin < end)
		left = (size_t)(end - begin);
	must(left < MARGIN);
	least = (size_t)(input->at + want - begin) - left;
	if (!ahead_take(&input->ahead, begin + left, &got))
		got = read_some(input->files, input->fd, iov, begin + left, least);
	if (got < 0 || (size_t)got < least)
		return input_failed(input, begin + left, got < 0 ? (int)got : -ENODATA);
	if (left)
		memcpy(room_behind(input, 1) - left, input->buffer + (begin - input->buffer_at), left);
	input->buffer = room_behind(input, 1) - left;
	input->buffer_at = begin;
	/* A file ends anywhere, and what is behind the limit does not count; all that is in front of it is there
	 * then. */
	input->have = (size_t)MIN(left + (size_t)got, input->limit - begin);
	input->current = (input->current + 1) % ARRAY_SIZE(input->room);
	return 0;
}

/* And what follows is on its way: records are read from the first to the last. */
static int fill_on(struct input *input, size_t want)
{
	int rc = input_fill(input, want);
	struct iovec to = {.iov_len = input->piece};

	if (rc)
		return rc;
	for (unsigned asked; (asked = input->ahead.asked) < AHEAD_MOST;) {
		uint64_t next = input->buffer_at + input->have + asked * input->piece;

		to.iov_base = room_behind(input, 1 + asked);
		if (next >= input->limit || !ahead_ask(&input->ahead, input->fd, to, next))
			break;
	}
	return 0;
}

const unsigned char *input_here(const struct input *input)
{
	return input->buffer + (input->at - input->buffer_at);
}

static int input_damaged(const struct input *input, const char *why)
{
	return log_fail(-EBADMSG, ROOM, "%s: %s", input->path, why);
}

static int header_check(struct input *input)
{
	const struct format_header *h = &input->header;
	int rc;

	if (input->limit < HEADER)
		return log_fail(-EBADMSG, ROOM,
				"%s: file is too short: %" PRIu64 " bytes, and a segment's header has %zu", input->path,
				input->limit, HEADER);
	rc = input_fill(input, HEADER);
	if (rc)
		return rc;
	memcpy(&input->header, input->buffer, HEADER);
	if (memcmp(h->magic, FORMAT_MAGIC, sizeof(h->magic)) != 0)
		return input_damaged(input, "no header of a segment at its begin");
	if (!h->format || h->format > FORMAT_VERSION)
		return log_fail(-EPROTONOSUPPORT, ROOM, "%s: format %" PRIu32 ", and this rdmad knows %u", input->path,
				h->format, FORMAT_VERSION);
	if (!format_header_whole(h))
		return input_damaged(input, "the checksum of its header is wrong");
	input->seed = format_seed(h->store, h->id);
	input->at = HEADER;
	return 0;
}

int input_create(struct input *input, const struct wal_files *files, uint64_t size)
{
	size_t piece = (size_t)block_of(MIN(READ_MOST, MAX(size, MARGIN)));

	*input = (struct input){.files = files, .fd = -1, .piece = piece};
	ahead_init(&input->ahead, files);
	for (unsigned i = 0; i < ARRAY_SIZE(input->room); i++) {
		input->room[i] = aligned_alloc(WAL_BLOCK, MARGIN + piece);
		if (!input->room[i])
			return -ENOMEM;
	}
	input->buffer = input->room[0];
	return 0;
}

void input_destroy(struct input *input)
{
	ahead_fini(&input->ahead);
	for (unsigned i = 0; i < ARRAY_SIZE(input->room); i++)
		free(input->room[i]);
}

int input_open(struct input *input, int directory, const char *name, const char *path)
{
	const struct wal_files *files = input->files;
	int64_t size;
	int rc;

	input->path = path;
	input->at = input->buffer_at = input->have = 0;
	input->fd = files->open(files->arg, directory, name, O_RDONLY | O_DIRECT);
	if (input->fd < 0)
		return log_fail(input->fd, ROOM, "%s: opening failed: %s", path, strerror(-input->fd));
	size = files->size(files->arg, input->fd);
	input->limit = size < 0 ? 0 : (uint64_t)size;
	rc = size < 0 ? input_failed(input, 0, (int)size) : header_check(input);
	if (rc)
		input_close(input);
	return rc;
}

void input_close(struct input *input)
{
	input_settle(input);
	input->files->close(input->files->arg, input->fd);
}

/*
 * Records.
 */

static void record_fill(struct found_record *out, const void *key)
{
	const struct format_record *h = &out->header;

	out->record = (struct wal_record){
		.lsn = h->lsn,
		.expires = h->expires,
		.version = format_is_set(h) ? 0 : h->version,
		.type = format_is_set(h) ? WAL_SET : (enum wal_type)h->type,
		.flags = h->flags,
		.key_len = format_key_len(h),
		.key = key,
		.value_len = format_value_len(h),
		.item_flags = h->type == FORMAT_ITEM ? (uint32_t)(h->version >> 32) : 0,
		.item_type = h->type == FORMAT_ITEM ? (uint8_t)(h->version >> 16) : 0,
	};
}

static int next_whole(struct input *input, struct found_record *out)
{
	const struct format_record *h = &out->header;
	size_t head = format_head(h), len = head + (size_t)format_value_len(h);
	int rc = fill_on(input, len);
	const unsigned char *here = input_here(input);

	if (rc)
		return rc;
	if (format_sum(here + 8, len - 8, input->seed) != h->checksum)
		return 0;
	record_fill(out, here + sizeof(*h));
	if (out->record.value_len)
		out->record.value = here + head;
	return 1;
}

/* To `value` where it is wanted, and into the checksum. */
static int value_read(struct input *input, uint64_t at, uint64_t len, unsigned char *value,
		      struct format_summer *summer)
{
	uint64_t begin = input->at;
	int rc = 0;

	for (uint64_t done = 0; done < len && rc == 0; done += INPUT_PIECE) {
		size_t piece = (size_t)MIN(INPUT_PIECE, len - done);

		input->at = at + done;
		rc = fill_on(input, piece);
		if (rc)
			break;
		format_sum_add(summer, input_here(input), piece);
		if (value)
			memcpy(value + done, input_here(input), piece);
	}
	input->at = begin;
	return rc;
}

static int next_long(struct input *input, const struct wal_reader *reader, struct found_record *out)
{
	const struct format_record *h = &out->header;
	size_t len = format_head(h);
	uint64_t value_len = format_value_len(h), value_at = input->at + len;
	struct format_summer summer;
	void *value = NULL;
	int rc = fill_on(input, len);

	if (rc)
		return rc;
	memcpy(input->key, input_here(input) + sizeof(*h), format_key_len(h));
	record_fill(out, input->key);
	format_sum_begin(&summer, input->seed);
	format_sum_add(&summer, input_here(input) + 8, len - 8);
	if (format_is_set(h) && reader && reader->place)
		rc = reader->place(reader->arg, &out->record, &value);
	if (rc)
		return rc;
	rc = value_read(input, value_at, value_len, value, &summer);
	out->record.value = value;
	if (rc == 0 && format_sum_end(&summer) == h->checksum)
		return 1;
	if (value)
		reader->drop(reader->arg, value);
	return rc;
}

int input_next(struct input *input, const struct wal_reader *reader, struct found_record *out)
{
	uint64_t room = input->limit - input->at;
	int rc;

	if (room < sizeof(out->header))
		return 0;
	rc = fill_on(input, sizeof(out->header));
	if (rc)
		return rc;
	memcpy(&out->header, input_here(input), sizeof(out->header));
	if (!format_plausible(&out->header, room) || !format_sound(&out->header))
		return 0;
	rc = format_value_len(&out->header) > FORMAT_WHOLE_MAX ? next_long(input, reader, out) : next_whole(input, out);
	if (rc == 1)
		input->at += format_length(format_key_len(&out->header), format_gap(&out->header),
					   format_value_len(&out->header));
	return rc;
}

/* Only COMMITs: they are short, so no value can make this slow. Most of what is looked at has never been written. */
static inline bool commit_at(const unsigned char *at, uint64_t seed, struct format_record *out)
{
	if (at[offsetof(struct format_record, type)] != FORMAT_COMMIT)
		return false;
	memcpy(out, at, sizeof(*out));
	return out->lengths == 0 && format_sum(at + 8, sizeof(*out) - 8, seed) == out->checksum;
}

int input_look_on(struct input *input, uint64_t *durable, uint64_t *end)
{
	uint64_t begin = input->at;
	struct format_record commit;
	int rc = 0;

	*durable = *end = 0;
	input->at += 8;
	while (input->at + sizeof(commit) <= input->limit && rc == 0) {
		const unsigned char *from, *here;

		rc = fill_on(input, (size_t)MIN(INPUT_PIECE, input->limit - input->at));
		if (rc)
			break;
		from = here = input_here(input);
		for (; here + sizeof(commit) <= input->buffer + input->have; here += 8) {
			uint64_t at = input->at + (uint64_t)(here - from);

			if (!commit_at(here, input->seed, &commit))
				continue;
			*durable = MAX(*durable, commit.version);
			*end = MAX(*end, at + MIN(commit.expires, input->limit - at));
		}
		input->at += (uint64_t)(here - from);
	}
	input->at = begin;
	return rc;
}
