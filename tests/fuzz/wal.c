/*
 * wal.c: a segment of the log as a disk may have it. The first byte says what is made of the others: the records of a segment, with
 * their checksums made right but where a byte asks for a wrong one; the segment's whole file; or the MANIFEST. What the log finds, it
 * finds the second time, too.
 */
#include "../fake/disk.h"
#include "fuzz.h"
#include "wal/internal.h"

#define SEGMENT (160 * KIB) /* room for values that are placed */

enum { RECORDS, FILE_RAW, MANIFEST, KINDS };

struct tally {
	uint64_t records, last, bytes;
	void *placed;
};

static int on_place(void *arg, const struct wal_record *record, void **value)
{
	struct tally *t = arg;

	REQUIRE(!t->placed && record->value_len > FORMAT_WHOLE_MAX && record->value_len <= SEGMENT);
	if (record->lsn % 2)
		*value = t->placed = malloc(record->value_len);
	return 0;
}

static void on_drop(void *arg, void *value)
{
	struct tally *t = arg;

	REQUIRE(value && t->placed == value);
	free(t->placed);
	t->placed = NULL;
}

static int on_record(void *arg, const struct wal_record *r)
{
	struct tally *t = arg;

	REQUIRE(r->lsn > t->last && r->type >= WAL_SET && r->type <= WAL_FLUSH);
	REQUIRE((r->key_len > 0) == (r->type != WAL_FLUSH) && r->key_len <= WAL_KEY_MAX);
	REQUIRE(r->type == WAL_SET || r->value_len == 0);
	for (unsigned i = 0; i < r->key_len; i++)
		t->bytes += ((const unsigned char *)r->key)[i];
	for (uint64_t i = 0; i < r->value_len && r->value; i++)
		t->bytes += ((const unsigned char *)r->value)[i];
	t->last = r->lsn;
	t->records++;
	if (t->placed)
		on_drop(t, t->placed);
	return 0;
}

static int recover(struct disk *disk, bool prefix, struct tally *t)
{
	const struct wal_config config = {
		.directory = "log", .segment = SEGMENT, .recover_prefix = prefix, .files = disk_files(disk)};
	const struct wal_reader reader = {.arg = t, .place = on_place, .drop = on_drop, .record = on_record};
	struct wal_found found;
	struct wal *wal;
	int rc = wal_open(&config, &wal);

	*t = (struct tally){0};
	if (rc)
		return rc;
	rc = wal_recover(wal, &reader, &found);
	REQUIRE(!t->placed && found.records == t->records);
	wal_close(wal);
	REQUIRE(disk_open_files(disk) == 0);
	return rc;
}

/* The file of the log's only segment. */
static void name_log(void *to, const char *name)
{
	if (strstr(name, ".log"))
		snprintf(to, NAME_SIZE, "%s", name);
}

static unsigned char *log_file(struct disk *disk, size_t **len)
{
	char name[NAME_SIZE] = "";

	disk_each(disk, name_log, name);
	return disk_file(disk, name, len);
}

/* 1 byte: whether its checksum is right; 40 bytes of a header; key and value as far as there is something. */
static size_t records_put(unsigned char *file, size_t room, uint64_t seed, const uint8_t *data, size_t size)
{
	struct format_record *header;
	size_t at = 0;

	while (size >= sizeof(*header) - 7 && room - at >= sizeof(*header)) {
		uint64_t len;
		size_t body;

		header = (void *)(file + at);
		memcpy((unsigned char *)header + 8, data + 1, sizeof(*header) - 8);
		len = format_length(format_key_len(header), format_gap(header), format_value_len(header));
		body = (size_t)MIN(MIN(len, room - at) - sizeof(*header), size - 41);
		memcpy(header + 1, data + 41, body);
		len = format_head(header) + format_value_len(header);
		if (len <= room - at)
			header->checksum = format_sum(file + at + 8, (size_t)len - 8, seed) + (data[0] == 1);
		at += (size_t)MIN((len + 7) & ~7ull, room - at);
		data += 41 + body;
		size -= 41 + body;
	}
	return at;
}

static void file_put(unsigned char *file, size_t *len, const uint8_t *data, size_t size)
{
	struct format_header *header = (void *)file;

	size = MIN(size, *len);
	memcpy(file, data, size);
	*len = size;
	if (size >= sizeof(*header) && data[0] == FORMAT_MAGIC[0])
		format_header_seal(header);
}

static void manifest_try(const uint8_t *data, size_t size)
{
	struct manifest m;
	const char *why = NULL;
	int rc = manifest_parse((const char *)data, size, &m, &why);

	REQUIRE(rc == 0 || ((rc == -EBADMSG || rc == -EPROTONOSUPPORT) && why));
	if (rc == 0)
		manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct disk *disk;
	struct tally first, again;
	struct format_header header;
	unsigned char *file;
	size_t *len;
	int rc;

	fuzz_silence();
	if (size < 1)
		return 0;
	if (data[0] % KINDS == MANIFEST) {
		manifest_try(data + 1, size - 1);
		return 0;
	}
	disk = disk_create(1);
	REQUIRE(recover(disk, false, &first) == 0);
	file = log_file(disk, &len);
	memcpy(&header, file, sizeof(header));
	if (data[0] % KINDS == RECORDS)
		records_put(file + HEADER, *len - HEADER, format_seed(header.store, header.id), data + 1, size - 1);
	else
		file_put(file, len, data + 1, size - 1);
	rc = recover(disk, data[0] & 0x80, &first);
	REQUIRE(rc == 0 || rc == -EBADMSG || rc == -EPROTONOSUPPORT);
	REQUIRE(recover(disk, false, &again) == rc);
	REQUIRE(first.records == again.records && first.last == again.last && first.bytes == again.bytes);
	disk_destroy(disk);
	return 0;
}
