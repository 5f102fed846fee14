/* check_log.c: what wal/wal.h promises. On a disk in memory that loses, tears and fails; a few on the kernel's files. */
#include "wal/internal.h"
#include "tests/wal/log_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/suite.h"

/* More of them by hand: LOG_SEEDS=100000; LOG_SEED is the first. */
static unsigned number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/*
 * Crashes.
 */

/* The call that the machine dies in may be any, also one of a recovery. What one has found, the next one finds. */
static void crash_open(struct world *w)
{
	struct wal_found found, again;
	bool once = false, full;
	int rc;

	if (world_draw(w, 4) == 0) {
		disk_fail(w->disk, 1 + (unsigned)world_draw(w, 60), EIO, true);
		rc = world_open(w, &found);
		ck_assert(rc == 0 || rc == -EIO);
		once = rc == 0;
		if (once)
			w->given = MAX(w->given, found.given);
		world_close(w);
		disk_crash(w->disk);
	}
	full = w->drawn && world_draw(w, 8) == 0; /* it is there to be read, too */
	if (full)
		disk_limit(w->disk, 0);
	rc = world_open(w, &again);
	disk_limit(w->disk, UINT64_MAX);
	ck_assert_msg(rc == 0, "seed %u: %s", w->seed, log_last());
	ck_assert(!once || again.last == found.last);
	ck_assert_msg(again.given > w->given, "seed %u: %llu were given out, and now from %llu on", w->seed,
		      (unsigned long long)w->given, (unsigned long long)again.given);
	w->given = full ? 0 : again.given; /* where there is no room nothing can be told to the next one */
	world_compare(w, &again);
}

static void crash_life(struct world *w)
{
	unsigned steps = (unsigned)world_draw(w, 120);
	int rc = 0;

	if (world_draw(w, 3))
		disk_fail(w->disk, 1 + (unsigned)world_draw(w, 300), EIO, true);
	while (steps-- && rc == 0)
		rc = world_step(w);
	world_close(w);
	if (world_draw(w, 3))
		disk_crash(w->disk);
	else
		disk_kill(w->disk); /* the process alone: what it wrote is there */
}

START_TEST(crashes)
{
	unsigned seeds = number("LOG_SEEDS", (unsigned)suite_part(12));
	unsigned first = number("LOG_SEED", 1) + (unsigned)_i * seeds;

	for (unsigned seed = first; seed < first + seeds; seed++) {
		struct world w;

		world_create(&w, seed);
		for (unsigned life = 0; life < 8; life++) {
			crash_open(&w);
			crash_life(&w);
		}
		crash_open(&w);
		world_close(&w);
		ck_assert_uint_eq(disk_open_files(w.disk), 0);
		world_destroy(&w);
	}
}
END_TEST

/* What the manifest names, as its segments' ids are of no test's business. */
static uint64_t segment_id(struct world *w, enum file_kind kind, unsigned i)
{
	const struct segments *list = kind == FILE_LOG ? &w->wal->manifest.log : &w->wal->manifest.checkpoint;

	ck_assert_uint_lt(i, list->count);
	return list->at[i].id;
}

static unsigned char *segment_file(struct world *w, enum file_kind kind, uint64_t id, size_t **len)
{
	char name[NAME_SIZE];
	unsigned char *file = disk_file(w->disk, segment_name(kind, id, name), len);

	ck_assert_msg(file, "no file %s", name);
	return file;
}

static int reopen(struct world *w, struct wal_found *found)
{
	world_close(w);
	return world_open(w, found);
}

static struct wal_info info_of(const struct world *w)
{
	struct wal_info info;

	wal_get_info(w->wal, &info);
	return info;
}

static void open_new(struct world *w, unsigned seed)
{
	struct wal_found found;

	world_create(w, seed);
	ck_assert_int_eq(world_open(w, &found), 0);
	ck_assert_uint_eq(found.last, 0);
}

/*
 * Bits and cuts.
 */

/* A checkpoint, a segment of the log that is whole, and one with three groups, the last of which may be torn. Returns the LSN that
 * was durable when that was written. */
static uint64_t small_log(struct world *w)
{
	struct wal_found found;
	uint64_t durable;

	open_new(w, 3);
	w->long_values = false;
	for (unsigned i = 0; i < 3; i++)
		world_set(w, i, 100);
	ck_assert(world_write(w, 3) == 0 && world_checkpoint_whole(w) == 0);
	for (unsigned i = 0; i < 4; i++)
		world_set(w, i + 1, 30 * i);
	ck_assert(world_write(w, 4) == 0 && world_sync(w) == 0);
	ck_assert_int_eq(reopen(w, &found), 0);
	world_compare(w, &found);
	for (unsigned i = 0; i < 3; i++) {
		durable = w->durable;
		world_set(w, i, 50 + i);
		world_set(w, i + 4, 20);
		ck_assert(world_write(w, 2) == 0 && world_sync(w) == 0);
	}
	world_close(w);
	return durable;
}

/* Refused, or a prefix that lacks no more than the last group. Nothing is changed by it. */
static void read_damaged(struct world *w, uint64_t least)
{
	struct world t = *w;
	struct wal_found found;
	int rc;

	disk_read_only(t.disk, true);
	rc = world_open(&t, &found);
	ck_assert_msg(rc == -EBADMSG || rc == -EPROTONOSUPPORT || rc == -EROFS, "%s", strerror(-rc));
	if (rc == -EROFS) {
		ck_assert_uint_ge(found.last, least);
		world_compare_prefix(&t, &found);
	}
	disk_read_only(t.disk, false);
	w->told = t.told;
	w->told_room = t.told_room;
}

struct damage {
	struct world *w;
	uint64_t least;
	unsigned files;
};

static size_t length_used(const unsigned char *file, size_t len)
{
	while (len && file[len - 1] == 0)
		len--;
	return len;
}

static bool of_no_interest(const char *name)
{
	return strstr(name, ".spare") || strstr(name, ".new");
}

static void count_each(void *arg, const char *name)
{
	(void)name;
	((struct damage *)arg)->files++;
}

static void flip_each(void *arg, const char *name)
{
	struct damage *d = arg;
	size_t *len, used;
	unsigned char *file = disk_file(d->w->disk, name, &len);

	if (of_no_interest(name))
		return;
	d->files++;
	used = length_used(file, *len);
	for (size_t i = 0; i < *len; i += i < used + 64 ? 1 : 509) {
		file[i] ^= (unsigned char)(1 << i % 8);
		read_damaged(d->w, d->least);
		file[i] ^= (unsigned char)(1 << i % 8);
	}
}

static void cut_each(void *arg, const char *name)
{
	struct damage *d = arg;
	size_t *len, whole, used;
	const unsigned char *file = disk_file(d->w->disk, name, &len);

	if (of_no_interest(name))
		return;
	d->files++;
	whole = *len;
	used = length_used(file, whole);
	for (size_t i = 0; i < whole; i += i < used + 64 ? 1 : 509) {
		*len = i;
		read_damaged(d->w, d->least);
	}
	*len = whole;
}

static void damage_each(void (*each)(void *arg, const char *name))
{
	struct world w;
	struct wal_found found;
	struct damage d = {.w = &w, .least = small_log(&w)};

	disk_each(w.disk, each, &d);
	ck_assert_uint_eq(d.files, 4); /* MANIFEST, a checkpoint's, two of the log */
	ck_assert_int_eq(world_open(&w, &found), 0);
	world_compare(&w, &found);
	world_destroy(&w);
}

START_TEST(every_byte_flipped)
{
	damage_each(flip_each);
}
END_TEST

START_TEST(every_length)
{
	damage_each(cut_each);
}
END_TEST

/*
 * Torn or damaged.
 */

/* Four groups in one segment, all durable; the offsets of their COMMITs. */
static void four_groups(struct world *w, uint64_t at[4], uint64_t *id)
{
	open_new(w, 5);
	for (unsigned i = 0; i < 4; i++) {
		at[i] = w->wal->log.at;
		world_set(w, i % 3, 600);
		world_set(w, 4 + i % 3, 600);
		ck_assert(world_write(w, 2) == 0 && world_sync(w) == 0);
	}
	*id = segment_id(w, FILE_LOG, 0);
}

#define SECOND_RECORD (48 + 656) /* in a group of these */

START_TEST(what_was_durable_is_damage)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id;
	unsigned char *file;
	size_t *len;

	four_groups(&w, at, &id);
	file = segment_file(&w, FILE_LOG, id, &len);
	file[at[1] + SECOND_RECORD + 100] ^= 1;
	ck_assert_int_eq(reopen(&w, &found), -EBADMSG);
	ck_assert_msg(strstr(log_last(), "damage at ") && strstr(log_last(), ".log"), "%s", log_last());
	ck_assert_int_eq(world_open(&w, &found), -EBADMSG); /* it stays so */
	w.config.recover_prefix = true;
	ck_assert_int_eq(world_open(&w, &found), 0);
	ck_assert_uint_eq(found.records, 3);
	ck_assert_uint_eq(found.lost, at[3] + 48 + 2 * 656 - at[1] - SECOND_RECORD);
	ck_assert_msg(strstr(log_last(), "bytes of records are lost"), "%s", log_last());
	ck_assert_uint_eq(info_of(&w).lost, found.lost);
	world_compare_prefix(&w, &found);
	world_change(&w, 3);
	ck_assert(world_write(&w, 3) == 0 && world_sync(&w) == 0);
	w.config.recover_prefix = false; /* what was given up is never asked for again */
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_uint_eq(found.records, 6);
	ck_assert_uint_eq(found.lost, 0);
	world_compare(&w, &found);
	/* Nobody asked for it, but what is damaged stays. */
	ck_assert_int_eq(world_checkpoint_whole(&w), 0);
	file = segment_file(&w, FILE_DAMAGED, id, &len);
	ck_assert_uint_eq(*len, WAL_SEGMENT_MIN);
	ck_assert_uint_eq(((struct format_header *)file)->id, id);
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_ptr_eq(segment_file(&w, FILE_DAMAGED, id, &len), file);
	world_destroy(&w);
}
END_TEST

/* Where nothing is kept of a segment its file stays at once, and those behind it. */
START_TEST(what_is_lost_stays)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id, next, lost;
	size_t *len;

	four_groups(&w, at, &id);
	ck_assert_int_eq(reopen(&w, &found), 0);
	world_compare(&w, &found);
	world_set(&w, 0, 600);
	ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
	lost = w.wal->log.at - HEADER;
	next = segment_id(&w, FILE_LOG, 1);
	segment_file(&w, FILE_LOG, id, &len)[HEADER + 60] ^= 1;
	w.config.recover_prefix = true;
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_uint_eq(found.records, 0);
	ck_assert_uint_eq(found.lost, lost + 4 * (48 + 2 * 656) - 48);
	segment_file(&w, FILE_DAMAGED, next, &len);
	ck_assert_uint_eq(*len, WAL_SEGMENT_MIN);
	world_destroy(&w);
}
END_TEST

/* A mark behind the last group tells that it was on disk. */
START_TEST(what_is_marked_is_damage)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id, end;

	for (unsigned i = 0; i < 2; i++) {
		size_t *len;
		unsigned char *file;

		four_groups(&w, at, &id);
		ck_assert_int_eq(wal_mark(w.wal), 0);
		end = w.wal->log.at;
		ck_assert_int_eq(wal_mark(w.wal), 0);
		ck_assert_uint_eq(w.wal->log.at, end); /* once */
		ck_assert_int_eq(reopen(&w, &found), 0);
		world_compare(&w, &found);
		ck_assert_uint_eq(found.records, 8);
		world_set(&w, 0, 600);
		ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
		if (i)
			ck_assert_int_eq(wal_mark(w.wal), 0);
		file = segment_file(&w, FILE_LOG, w.wal->log.segment.id, &len);
		file[HEADER + 48 + 100] ^= 1;
		ck_assert_int_eq(reopen(&w, &found), i ? -EBADMSG : 0);
		ck_assert_msg(strstr(log_last(), i ? "damage at" : "656 bytes"), "%s", log_last());
		world_destroy(&w);
	}
}
END_TEST

/* In a segment that was closed, behind which there is another one. No change is missing, so none is given up. A second mark is not
 * written by anybody: there the damage is taken as it is, and what is lost is so at the next start, too. */
START_TEST(a_mark_that_is_damaged)
{
	for (unsigned i = 0; i < 4; i++) {
		const bool two = i / 2;
		struct world w;
		struct wal_found found;
		uint64_t at[4], id, mark;
		size_t *len;

		four_groups(&w, at, &id);
		mark = w.wal->log.at;
		for (unsigned n = 0; n < 1u + two; n++) {
			w.wal->marked = 0;
			ck_assert_int_eq(wal_mark(w.wal), 0);
		}
		ck_assert_int_eq(reopen(&w, &found), 0);
		world_set(&w, 0, 600);
		ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
		segment_file(&w, FILE_LOG, id, &len)[mark + 16 + i % 2] ^= 1;
		w.config.recover_prefix = two;
		w.twice = true;
		for (unsigned life = 0; life < 3; life++) {
			ck_assert_int_eq(reopen(&w, &found), 0);
			ck_assert_uint_eq(found.lost > 0, two && !life);
			ck_assert_uint_eq(found.records, two ? 8 : 9);
			if (two)
				world_compare_prefix(&w, &found);
			else
				world_compare(&w, &found);
		}
		world_destroy(&w);
	}
}
END_TEST

/* A FLUSH is as long as a mark. */
START_TEST(a_flush_is_no_mark)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id, flush;
	size_t *len;

	four_groups(&w, at, &id);
	flush = w.wal->log.at + sizeof(struct format_record);
	world_flush(&w);
	ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
	ck_assert_uint_eq(w.wal->log.at, flush + sizeof(struct format_record));
	ck_assert_int_eq(reopen(&w, &found), 0);
	segment_file(&w, FILE_LOG, id, &len)[flush + 16] ^= 1;
	ck_assert_int_eq(reopen(&w, &found), -EBADMSG);
	ck_assert_msg(strstr(log_last(), "a record is not valid"), "%s", log_last());
	world_destroy(&w);
}
END_TEST

START_TEST(a_file_that_is_removed_is_noticed)
{
	struct world w;
	char name[NAME_SIZE];

	open_new(&w, 4);
	ck_assert(!wal_is_removed(w.wal));
	segment_name(FILE_LOG, w.wal->log.segment.id, name);
	ck_assert_int_eq(disk_files(w.disk)->unlink(w.disk, 0, name), 0);
	ck_assert(wal_is_removed(w.wal));
	world_destroy(&w);
}
END_TEST

START_TEST(the_last_group_may_be_torn)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id;
	unsigned char *file;
	size_t *len;

	four_groups(&w, at, &id);
	file = segment_file(&w, FILE_LOG, id, &len);
	file[at[3] + 60] ^= 1; /* its first record: the second one is whole */
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_uint_eq(found.records, 6);
	ck_assert_uint_eq(found.cut, 2 * 656);
	world_compare_prefix(&w, &found);
	world_set(&w, 9, 10);
	ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
	file = segment_file(&w, FILE_LOG, id, &len);
	file[at[3] + 60] ^= 1; /* the disk finds it again: what was cut stays so */
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_uint_eq(found.records, 7);
	ck_assert_uint_eq(found.cut, 0);
	world_compare(&w, &found);
	world_destroy(&w);
}
END_TEST

/* One key and one length, so that records of one life of a file lie where those of another do. */
static int same_record(struct world *w)
{
	world_set(w, 0, 600);
	return world_write(w, 1);
}

#define SAME_RECORD 656

/* A record that was lost, with an LSN that is still to come, lies in a file where a later record is lost: its id tells them apart. */
START_TEST(an_earlier_life_is_not_read)
{
	struct world w;
	struct wal_found found;
	unsigned char *file, old[SAME_RECORD];
	const uint64_t second = HEADER + 48 + SAME_RECORD;
	uint64_t id;
	size_t *len;

	open_new(&w, 5);
	ck_assert(same_record(&w) == 0 && world_sync(&w) == 0);
	world_set(&w, 0, 600);
	w.history[1].lsn += 5000;
	ck_assert_int_eq(world_write(&w, 1), 0);
	file = segment_file(&w, FILE_LOG, segment_id(&w, FILE_LOG, 0), &len);
	file[second + 8] ^= 1; /* its COMMIT is lost, and it is not */
	memcpy(old, file + second + 48, sizeof(old));
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_uint_eq(found.records, 1);
	world_compare(&w, &found);
	ck_assert_int_eq(world_checkpoint_whole(&w), 0); /* the file is a spare */
	id = w.wal->log.segment.id;
	while (w.wal->log.segment.id == id)
		ck_assert_int_eq(same_record(&w), 0);
	file = segment_file(&w, FILE_LOG, w.wal->log.segment.id, &len);
	ck_assert(world_sync(&w) == 0 && same_record(&w) == 0 && w.wal->log.at == second + 48 + SAME_RECORD);
	memcpy(file + second + 48, old, sizeof(old));
	ck_assert_int_eq(reopen(&w, &found), 0);
	ck_assert_uint_eq(found.cut, SAME_RECORD);
	world_compare(&w, &found);
	world_destroy(&w);
}
END_TEST

/* A segment before the one that is written was on disk as a whole. */
START_TEST(a_closed_segment_is_whole)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id;
	unsigned char *file;
	size_t *len;

	four_groups(&w, at, &id);
	ck_assert_int_eq(reopen(&w, &found), 0);
	world_compare(&w, &found);
	file = segment_file(&w, FILE_LOG, id, &len);
	file[at[3] + SECOND_RECORD + 100] ^= 1; /* the last record */
	ck_assert_int_eq(reopen(&w, &found), -EBADMSG);
	file[at[3] + SECOND_RECORD + 100] ^= 1;
	*len = HEADER - 1;
	ck_assert_int_eq(world_open(&w, &found), -EBADMSG);
	ck_assert_int_eq(world_open(&w, &found), -EBADMSG);
	world_destroy(&w);
}
END_TEST

static char errors_seen[4096];

static void keep_errors(enum log_level level, const char *room, const char *text)
{
	size_t used = strlen(errors_seen);

	snprintf(errors_seen + used, sizeof(errors_seen) - used, "%s: %s\n", room, text);
}

START_TEST(a_short_file_is_named)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id;
	size_t *len;

	four_groups(&w, at, &id);
	segment_file(&w, FILE_LOG, id, &len);
	*len = 100;
	log_set_handler(keep_errors);
	ck_assert_int_eq(reopen(&w, &found), -EBADMSG);
	ck_assert_msg(strstr(errors_seen, "file is too short: 100 bytes"), "%s", errors_seen);
	world_destroy(&w);
}
END_TEST

/* Of a checkpoint no prefix is of use. */
START_TEST(a_damaged_checkpoint_is_refused)
{
	struct world w;
	struct wal_found found;
	unsigned char *file;
	size_t *len;

	open_new(&w, 6);
	for (unsigned i = 0; i < 6; i++)
		world_set(&w, i, 1000);
	ck_assert(world_write(&w, 6) == 0 && world_checkpoint_whole(&w) == 0);
	file = segment_file(&w, FILE_CHECKPOINT, segment_id(&w, FILE_CHECKPOINT, 0), &len);
	file[HEADER + 3000] ^= 1;
	w.config.recover_prefix = true;
	ck_assert_int_eq(reopen(&w, &found), -EBADMSG);
	world_destroy(&w);
}
END_TEST

START_TEST(no_manifest_is_no_empty_log)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id;
	size_t *len;

	four_groups(&w, at, &id);
	world_close(&w);
	ck_assert_ptr_nonnull(disk_file(w.disk, "MANIFEST", &len));
	disk_files(w.disk)->rename(w.disk, 0, "MANIFEST", "elsewhere");
	ck_assert_int_eq(world_open(&w, &found), -EBADMSG);
	disk_files(w.disk)->rename(w.disk, 0, "elsewhere", "MANIFEST");
	ck_assert_int_eq(world_open(&w, &found), 0);
	world_compare(&w, &found);
	world_destroy(&w);
}
END_TEST

/*
 * Types.
 */

/* Puts another type into the first record of the second group. */
static int with_type(struct world *w, unsigned type, struct wal_found *found)
{
	uint64_t at[4], id, sum;
	unsigned char *record;
	size_t *len;

	four_groups(w, at, &id);
	record = segment_file(w, FILE_LOG, id, &len) + at[1] + sizeof(struct format_record);
	record[offsetof(struct format_record, type)] = (unsigned char)type;
	sum = format_sum(record + 8, 48 + 5 + 600 - 8, format_seed(w->wal->manifest.store, id));
	memcpy(record, &sum, sizeof(sum));
	return reopen(w, found);
}

START_TEST(types_of_later_times)
{
	struct world w;
	struct wal_found found;

	ck_assert_int_eq(with_type(&w, 200, &found), 0);
	ck_assert_uint_eq(found.records, 7);
	world_destroy(&w);
	ck_assert_int_eq(with_type(&w, 99, &found), -EPROTONOSUPPORT);
	world_destroy(&w);
	ck_assert_int_eq(with_type(&w, WAL_FLUSH, &found), -EBADMSG); /* has no key */
	world_destroy(&w);
}
END_TEST

/* What a reader that does not know of attributes makes of a record: where it ends, and whether it is whole. */
static uint64_t former_length(const unsigned char *at, uint64_t seed, bool *whole)
{
	const struct format_record *r = (const void *)at;
	uint64_t len = sizeof(*r) + (r->lengths >> 48) + (r->lengths & FORMAT_VALUE_MAX);

	len += r->type == WAL_SET ? r->version : 0;
	*whole = format_sum(at + 8, len - 8, seed) == r->checksum;
	return (len + 7) & ~7ull;
}

/* It refuses them: it would cut the log there, did it take them for torn. */
START_TEST(attributes_are_refused_by_former_readers)
{
	static const uint64_t lens[] = {0, 600, 20000, 90 * KIB, 300 * KIB};
	unsigned items = 0, sets = 0;
	const unsigned char *file;
	uint64_t at = HEADER, end, seed;
	struct world w;
	size_t *len;
	bool whole;

	open_new(&w, 5);
	for (unsigned i = 0; i < 4 * ARRAY_SIZE(lens); i++)
		world_set(&w, i % 3, lens[i % ARRAY_SIZE(lens)]);
	ck_assert(world_write(&w, 4 * ARRAY_SIZE(lens)) == 0 && world_sync(&w) == 0);
	end = w.wal->log.at;
	seed = w.wal->log.seed;
	file = segment_file(&w, FILE_LOG, w.wal->log.segment.id, &len);
	while (at < end) {
		const struct format_record *r = (const void *)(file + at);

		items += r->type == 7 && r->version >> 32;
		sets += r->type == WAL_SET && r->version < FORMAT_GAP;
		at += former_length(file + at, seed, &whole);
		ck_assert(whole);
	}
	ck_assert(at == end && items && sets && items + sets == 4 * ARRAY_SIZE(lens));
	world_destroy(&w);
}
END_TEST

START_TEST(gaps_that_cannot_be)
{
	struct format_record r = {.type = FORMAT_ITEM, .lsn = 1, .lengths = 1ull << 48 | 100};

	ck_assert(format_plausible(&r, 1000) && format_sound(&r) && format_value_len(&r) == 100);
	r.version = 100;
	ck_assert(format_plausible(&r, 1000) && format_value_len(&r) == 0);
	r.version = 101;
	ck_assert(!format_plausible(&r, 1000));
	r.lengths = 1ull << 48 | 600;
	r.version = FORMAT_GAP;
	ck_assert(!format_plausible(&r, 1000));
	r.version = FORMAT_GAP - 1;
	ck_assert(format_plausible(&r, 1000) && !format_plausible(&r, 600));
	r.version |= 1ull << 32;
	ck_assert(format_plausible(&r, 1000));
	r.type = WAL_SET;
	ck_assert(!format_plausible(&r, 2000));
}
END_TEST

static void segment_aged(void *to, const char *name)
{
	struct world *w = to;
	enum file_kind kind;
	uint64_t id;
	size_t *len;
	struct format_header *header;

	if (!segment_name_parse(name, &kind, &id) || kind == FILE_SPARE)
		return;
	header = (void *)disk_file(w->disk, name, &len);
	ck_assert_uint_eq(header->format, 2);
	header->format = 1;
	header->checksum = format_sum(header, offsetof(struct format_header, checksum), 0);
}

static void manifest_aged(struct world *w)
{
	size_t *len;
	char *text = (char *)disk_file(w->disk, "MANIFEST", &len), *sum = strstr(text, "checksum ");

	ck_assert(memcmp(text, "rdmad-log 2", 11) == 0);
	text[10] = '1';
	sprintf(sum, "checksum %016llx", (unsigned long long)format_sum(text, (size_t)(sum - text), 0));
	sum[25] = '\n';
}

/* Format 1 is this one without gaps, which only long values have. */
START_TEST(the_format_before_is_read)
{
	struct world w;
	struct wal_found found;
	uint64_t at[4], id;

	four_groups(&w, at, &id);
	ck_assert_int_eq(world_checkpoint_whole(&w), 0);
	world_set(&w, 1, 600);
	ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
	world_close(&w);
	disk_each(w.disk, segment_aged, &w);
	manifest_aged(&w);
	for (unsigned life = 0; life < 3; life++) {
		ck_assert_int_eq(world_open(&w, &found), 0);
		world_compare(&w, &found);
		world_set(&w, life, 90 * KIB);
		ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
		world_close(&w);
	}
	world_destroy(&w);
}
END_TEST

START_TEST(formats_of_later_times)
{
	static const char later[] = "rdmad-log 3\nwhatever\n";
	struct manifest m;
	const char *why;
	struct world w;
	struct wal_found found;
	unsigned char *text;
	size_t *len;

	ck_assert_int_eq(manifest_parse(later, sizeof(later) - 1, &m, &why), -EPROTONOSUPPORT);
	ck_assert_int_eq(manifest_parse("", 0, &m, &why), -EBADMSG);
	ck_assert_int_eq(manifest_parse("rdmad-log 0\n", 12, &m, &why), -EBADMSG);
	ck_assert_int_eq(manifest_parse("rdmad-log 2\n", 12, &m, &why), -EBADMSG);

	/* A caller that is told of it keeps the log, and its rdmad. */
	open_new(&w, 5);
	world_close(&w);
	text = disk_file(w.disk, "MANIFEST", &len);
	memcpy(text, "rdmad-log 3", 11);
	ck_assert_int_eq(world_open(&w, &found), -EPROTONOSUPPORT);
	ck_assert_msg(strstr(log_last(), "use that one"), "%s", log_last());
	world_destroy(&w);
}
END_TEST

/*
 * Errors.
 */

/* The same calls each time, until one fails for ever; what the disk has no room for is tried again. -errno. */
static int scenario(struct world *w, unsigned *refused)
{
	struct wal_found found;
	int rc;

	do
		rc = world_open(w, &found);
	while (rc == -ENOSPC && ++*refused < 8);
	if (rc)
		return rc;
	world_compare(w, &found);
	for (unsigned i = 0; i < 60 && rc == 0; i++) {
		rc = i % 20 == 19 ? world_checkpoint_whole(w) : world_step(w);
		if (rc == -ENOSPC && ++*refused < 8)
			rc = 0;
	}
	while (rc == 0 && w->handed < w->drawn) {
		rc = world_write(w, 64);
		if (rc == -ENOSPC && ++*refused < 8)
			rc = 0;
	}
	return rc ? rc : world_sync(w);
}

static void error_for_ever(struct world *w, int error)
{
	struct wal_info info;

	if (!w->wal)
		return;
	wal_get_info(w->wal, &info);
	ck_assert_int_eq(info.error, error);
	world_change(w, 3);
	ck_assert_int_eq(world_write(w, 3), error);
	ck_assert_int_eq(world_sync(w), error);
	ck_assert_int_eq(w->walking ? wal_checkpoint_end(w->wal, UINT64_MAX) : wal_checkpoint_begin(w->wal, 0), error);
}

/* True: the call was not reached. */
static bool fail_at(unsigned call, int error, bool after)
{
	struct world w;
	struct wal_found found;
	unsigned refused = 0;
	bool reached;
	int rc;

	world_create(&w, 8);
	disk_fail(w.disk, call, error, after);
	rc = scenario(&w, &refused);
	reached = disk_calls(w.disk) >= call;
	if (error == EIO && rc == -EIO)
		error_for_ever(&w, rc);
	if (rc == 0) /* the call that failed was one that need not succeed, or was made again */
		ck_assert(w.handed == w.drawn && w.durable == w.history[w.drawn - 1].lsn);
	else
		ck_assert_msg(rc == -EIO || (error == ENOSPC && rc == -ENOSPC && after), "%s", strerror(-rc));
	world_close(&w);
	ck_assert_uint_eq(disk_open_files(w.disk), 0);
	disk_crash(w.disk);
	rc = world_open(&w, &found);
	ck_assert_msg(rc == 0, "call %u, error %d %d: %s", call, error, after, log_last());
	world_compare(&w, &found);
	world_destroy(&w);
	return !reached;
}

START_TEST(errors_at_each_call)
{
	static const int error[] = {EIO, ENOSPC};

	for (unsigned i = 0; i < 4; i++) {
		unsigned call = 1;

		while (!fail_at(call, error[i / 2], i % 2))
			call++;
		ck_assert_uint_gt(call, 100);
	}
}
END_TEST

/* A daemon that starts as another user than the one who wrote the log is told of that, and not of a broken disk. */
START_TEST(errors_of_permission_are_told)
{
	struct world w;
	struct wal_found found;
	unsigned call = 0;
	int rc;

	open_new(&w, 3);
	world_change(&w, 3);
	ck_assert_int_eq(world_write(&w, 3), 0);
	ck_assert_int_eq(world_sync(&w), 0);
	world_close(&w);
	do {
		disk_fail(w.disk, ++call, EACCES, true);
		rc = world_open(&w, &found);
		if (rc == 0)
			break;
		ck_assert_int_eq(rc, -EACCES);
		ck_assert_msg(!strstr(log_last(), "not known"), "%s", log_last());
		world_close(&w);
	} while (true);
	ck_assert_uint_gt(call, 10);
	disk_fail(w.disk, 0, 0, false);
	world_destroy(&w);
}
END_TEST

static void fail_sync(unsigned seed, unsigned n)
{
	struct world w;
	struct wal_found found;
	unsigned syncs;
	int rc = 0;

	open_new(&w, seed);
	disk_fail_sync(w.disk, n, n % 2 ? EIO : ENOSPC);
	for (unsigned i = 0; i < 200 && rc == 0; i++) {
		world_change(&w, 3);
		rc = world_write(&w, 3);
		if (rc == 0)
			rc = i % 8 == 7 ? world_checkpoint_whole(&w) : world_sync(&w);
	}
	ck_assert_int_eq(rc, -EIO);
	syncs = disk_syncs(w.disk);
	error_for_ever(&w, -EIO);
	ck_assert_uint_eq(disk_syncs(w.disk), syncs);
	world_close(&w);
	disk_crash(w.disk);
	rc = world_open(&w, &found);
	ck_assert_msg(rc == 0, "seed %u, sync %u: %s", seed, n, log_last());
	world_compare(&w, &found);
	world_destroy(&w);
}

/* Where the system has no thread to give, a log is read as it is with one. */
START_TEST(a_log_is_read_alone)
{
	struct world w;
	struct wal_found found;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	ck_assert_int_eq(pthread_attr_setstacksize(&attr, 1ull << 46), 0);
	ck_assert_int_eq(pthread_setattr_default_np(&attr), 0);
	pthread_attr_destroy(&attr);
	world_create(&w, 3);
	w.config.segment = 2 * MIB;
	ck_assert_int_eq(world_open(&w, &found), 0);
	for (unsigned i = 0; i < 100; i++) {
		world_change(&w, 10);
		ck_assert_int_eq(world_write(&w, 10), 0);
	}
	ck_assert_int_eq(world_sync(&w), 0);
	ck_assert_int_eq(reopen(&w, &found), 0);
	world_compare(&w, &found);
	world_destroy(&w);
}
END_TEST

/* One that failed is not made again, and whatever a crash makes of what it left, what was durable is there. */
START_TEST(a_sync_is_not_tried_again)
{
	for (unsigned seed = 1; seed <= suite_part(12); seed++)
		for (unsigned n = 1; n <= 60; n++)
			fail_sync(seed, n);
}
END_TEST

/* A group of which a part was written comes to nothing, also behind a shorter one in its place. */
START_TEST(a_group_without_room_leaves_nothing)
{
	for (unsigned seed = 1; seed < 200; seed++) {
		struct world w;
		struct wal_found found;
		unsigned refused;

		open_new(&w, seed);
		for (unsigned i = 0; i < 8; i++)
			world_set(&w, i % 4, 500);
		ck_assert(world_write(&w, 2) == 0 && world_sync(&w) == 0);
		disk_fail(w.disk, 1, ENOSPC, false);
		ck_assert_int_eq(world_write(&w, 6), -ENOSPC);
		refused = w.drawn;
		/* The caller thinks again. */
		w.drawn = w.handed;
		world_set(&w, 0, 500);
		ck_assert_int_eq(world_write(&w, 1), 0);
		if (seed % 2)
			ck_assert_int_eq(world_sync(&w), 0);
		ck_assert_uint_lt(w.drawn, refused);
		world_close(&w);
		disk_crash(w.disk);
		ck_assert_int_eq(world_open(&w, &found), 0);
		world_compare(&w, &found);
		world_destroy(&w);
	}
}
END_TEST

/*
 * Room.
 */

static int write_some(struct world *w)
{
	int rc;

	if (w->handed == w->drawn)
		world_set(w, (unsigned)world_draw(w, WORLD_KEYS), 1500);
	rc = world_write(w, 1);
	return rc ? rc : world_sync(w);
}

/* A disk on which no segment finds room that is as long as is wanted has shorter ones, and has them again at the next start. */
START_TEST(a_small_disk_has_short_segments)
{
	struct world w;
	struct wal_found found;
	uint64_t segment;

	world_create(&w, 9);
	w.long_values = false;
	w.config.segment = 256 * MIB;
	disk_limit(w.disk, 2 * MIB);
	ck_assert_int_eq(world_open(&w, &found), 0);
	ck_assert_msg(strstr(log_last(), "2.00 MiB") && strstr(log_last(), "256 MiB"), "%s", log_last());
	segment = info_of(&w).segment;
	ck_assert_uint_le(segment, 2 * MIB / 4);
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < 400; i++)
			ck_assert_int_eq(write_some(&w), 0);
		ck_assert_int_eq(world_checkpoint_whole(&w), 0);
		ck_assert_int_eq(reopen(&w, &found), 0);
		world_compare(&w, &found);
		ck_assert_uint_eq(info_of(&w).segment, segment);
	}
	world_destroy(&w);
}
END_TEST

static void open_full(struct world *w)
{
	struct wal_found found;

	disk_limit(w->disk, disk_used(w->disk));
	ck_assert_int_eq(reopen(w, &found), 0);
	world_compare(w, &found);
	ck_assert(info_of(w).last);
	ck_assert_uint_gt(info_of(w).segments, 0);
	ck_assert_int_eq(info_of(w).error, 0);
}

/* What there is can be read, and what changes is refused until there is room; it may be in a segment that has nothing, as that of a
 * start without a write behind it. */
START_TEST(a_log_begins_on_a_full_disk)
{
	struct world w;
	struct wal_found found;
	uint64_t files;

	open_new(&w, 13);
	disk_limit(w.disk, 5 * WAL_SEGMENT_MIN);
	while (write_some(&w) == 0)
		;
	for (unsigned i = 0; i < 3; i++) {
		open_full(&w);
		ck_assert_int_eq(write_some(&w), -ENOSPC);
		ck_assert_int_eq(wal_room(w.wal), -ENOSPC);
	}
	disk_limit(w.disk, UINT64_MAX);
	ck_assert_int_eq(wal_room(w.wal), 0);
	ck_assert(!info_of(&w).last);
	ck_assert_int_eq(write_some(&w), 0);
	files = info_of(&w).segments + info_of(&w).spare;
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(reopen(&w, &found), 0);
	world_compare(&w, &found);
	ck_assert_uint_le(info_of(&w).segments + info_of(&w).spare, files + 2); /* the one at hand, and one that was */
	world_destroy(&w);
}
END_TEST

/* A spare's room is for what is to be written now: a manifest, and then a checkpoint, which has room for the log. */
START_TEST(a_spare_gives_way)
{
	struct world w;
	struct wal_found found;

	open_new(&w, 14);
	while (!info_of(&w).spare)
		ck_assert_int_eq(write_some(&w), 0);
	open_full(&w);
	ck_assert_int_eq(write_some(&w), -ENOSPC);
	w.rests = true;
	ck_assert_int_eq(world_checkpoint_whole(&w), 0);
	ck_assert_int_eq(wal_room(w.wal), 0);
	ck_assert_int_eq(write_some(&w), 0);
	ck_assert_int_eq(reopen(&w, &found), 0);
	world_compare(&w, &found);
	world_destroy(&w);
}
END_TEST

/* Nothing changes while it is made: then it has also what the log found no room for. */
START_TEST(a_checkpoint_makes_room_for_the_log)
{
	for (unsigned seed = 1; seed < 40; seed++) {
		struct world w;
		struct wal_found found;

		open_new(&w, seed);
		w.long_values = seed % 4 == 1;
		w.rests = true;
		disk_limit(w.disk, (1 + seed % 6) * (WAL_SEGMENT_MIN + 8192));
		while (write_some(&w) == 0)
			;
		world_change(&w, 5);
		disk_limit(w.disk, disk_used(w.disk) +
					   (w.long_values ? 24 : 4) *
						   WAL_SEGMENT_MIN); /* what the checkpoint needs, but for its sync */
		ck_assert_int_eq(world_checkpoint_whole(&w), 0);
		disk_limit(w.disk, disk_used(w.disk) + 4096); /* for a manifest */
		if (seed % 3) {
			while (w.handed < w.drawn)
				ck_assert_int_eq(world_write(&w, 2), 0);
			ck_assert_int_eq(wal_room(w.wal), 0);
		}
		if (seed % 2)
			w.durable = w.history[w.drawn - 1].lsn;
		world_close(&w);
		disk_crash(w.disk);
		disk_limit(w.disk, UINT64_MAX);
		for (unsigned i = 0; i < 3; i++) {
			ck_assert_int_eq(world_open(&w, &found), 0);
			world_compare(&w, &found);
			ck_assert_uint_eq(found.last, w.history[w.drawn - 1].lsn);
			ck_assert_int_eq(write_some(&w), 0);
			world_close(&w);
		}
		world_destroy(&w);
	}
}
END_TEST

/* A change longer than a segment cannot be in a spare: it gets the room of spares, or waits for a checkpoint that has it. */
START_TEST(a_long_change_gets_room)
{
	static const uint64_t length[] = {100 * KIB, 290 * KIB};

	for (unsigned i = 0; i < ARRAY_SIZE(length); i++) {
		struct world w;
		struct wal_found found;

		open_new(&w, 15);
		w.rests = true;
		while (info_of(&w).segments < 3)
			ck_assert_int_eq(write_some(&w), 0);
		ck_assert_int_eq(world_checkpoint_whole(&w), 0);
		ck_assert_uint_gt(info_of(&w).spare, 1);
		ck_assert_uint_lt(info_of(&w).spare, 5);      /* these have no room for the longer one */
		disk_limit(w.disk, disk_used(w.disk) + 4096); /* for a manifest */
		world_set(&w, 0, length[i]);
		ck_assert_int_eq(world_write(&w, 1), i ? -ENOSPC : 0);
		if (i) {
			disk_limit(w.disk, disk_used(w.disk) + length[i] + WAL_SEGMENT_MIN); /* for the checkpoint */
			ck_assert_int_eq(world_checkpoint_whole(&w), 0);
			disk_limit(w.disk, disk_used(w.disk) + 2 * WAL_SEGMENT_MIN);
			ck_assert_int_eq(world_write(&w, 1), 0);
			ck_assert_int_eq(wal_room(w.wal), 0);
		}
		ck_assert_int_eq(world_sync(&w), 0);
		for (unsigned life = 0; life < 3; life++) {
			world_close(&w);
			disk_crash(w.disk);
			ck_assert_int_eq(world_open(&w, &found), 0);
			world_compare(&w, &found);
			ck_assert_uint_eq(found.last, w.history[w.drawn - 1].lsn);
			disk_limit(w.disk, UINT64_MAX);
			ck_assert_int_eq(write_some(&w), 0);
		}
		world_destroy(&w);
	}
}
END_TEST

START_TEST(a_full_disk_says_so_before)
{
	struct world w;
	struct wal_found found;
	unsigned warned = 0, last = 0;
	uint64_t limit;
	int rc;

	open_new(&w, 11);
	limit = 23 * WAL_SEGMENT_MIN / 4;
	disk_limit(w.disk, limit);
	while ((rc = write_some(&w)) == 0) {
		warned += info_of(&w).full;
		last += info_of(&w).last;
	}
	ck_assert_int_eq(rc, -ENOSPC);
	ck_assert_uint_gt(warned, 10); /* groups that had room after the warning */
	ck_assert(last > 4 && last < warned);
	ck_assert_uint_gt(limit - disk_used(w.disk), WAL_SEGMENT_MIN / 2); /* is for a checkpoint */
	ck_assert_int_eq(write_some(&w), -ENOSPC);
	ck_assert_int_eq(info_of(&w).error, 0);
	disk_limit(w.disk, UINT64_MAX);
	ck_assert_int_eq(write_some(&w), 0);
	ck_assert(!info_of(&w).full);
	ck_assert_int_eq(reopen(&w, &found), 0);
	world_compare(&w, &found);
	world_destroy(&w);
}
END_TEST

/* The files of segments are used again, and there is no end of files that are not. */
START_TEST(segments_are_recycled)
{
	struct world w;
	struct wal_found found;
	unsigned most = 0;

	open_new(&w, 12);
	for (unsigned round = 0; round < 12; round++) {
		for (unsigned i = 0; i < 200; i++)
			ck_assert_int_eq(write_some(&w), 0);
		ck_assert_uint_gt(info_of(&w).segments, 3);
		ck_assert_uint_gt(info_of(&w).log_bytes, 200 * 1500);
		ck_assert_int_eq(world_checkpoint_whole(&w), 0);
		ck_assert_uint_eq(info_of(&w).segments, 1);
		ck_assert_uint_lt(info_of(&w).log_bytes, 3000);
		most = MAX(most, info_of(&w).spare);
		if (round % 4 == 3) {
			ck_assert_int_eq(reopen(&w, &found), 0);
			ck_assert_uint_eq(found.records, found.items); /* the log has no more */
			world_compare(&w, &found);
		}
	}
	ck_assert_uint_gt(most, 1);
	ck_assert_uint_lt(most, 16);
	world_destroy(&w);
}
END_TEST

/* What was not finished goes at the next start, and starts without changes leave nothing. */
START_TEST(what_counts_for_nothing_goes)
{
	struct world w;
	struct wal_found found;
	struct damage d = {.w = &w};

	open_new(&w, 13);
	for (unsigned i = 0; i < 6; i++)
		world_set(&w, i, 19200);
	ck_assert_int_eq(world_write(&w, 6), 0);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(world_checkpoint(&w), 0);
	disk_fail(w.disk, 1, EIO, true); /* the process dies */
	world_close(&w);
	disk_kill(w.disk);
	for (unsigned i = 0; i < 5; i++) {
		ck_assert_int_eq(world_open(&w, &found), 0);
		world_compare(&w, &found);
		world_close(&w);
	}
	disk_each(w.disk, count_each, &d);
	ck_assert_uint_eq(d.files, 5); /* MANIFEST, the log's with the changes, one that is empty, a spare */
	world_destroy(&w);
}
END_TEST

/*
 * The kernel's files.
 */

static char home[64];

static void home_up(void)
{
	snprintf(home, sizeof(home), "/tmp/rdmad-check-log-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(home));
}

static void home_down(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", home);
	ck_assert_int_eq(system(command), 0);
}

static void world_on_kernel(struct world *w, char *path, size_t size)
{
	world_create(w, 21);
	snprintf(path, size, "%s/log", home);
	w->config.directory = path;
	w->config.files = NULL;
}

/* A file system or a disk may want other blocks than these. */
START_TEST(blocks_of_another_size)
{
	const struct wal_files *files = &wal_files_kernel;
	char buf[100] = "as long as this", got[100] = "";
	int directory = files->open(NULL, -1, home, O_RDONLY | O_DIRECTORY);
	int fd = files->open(NULL, directory, "blocks", O_RDWR | O_CREAT | O_DIRECT);

	ck_assert(directory >= 0 && fd >= 0);
	ck_assert_int_eq(files->allocate(NULL, fd, 3 * WAL_BLOCK), 0);
	ck_assert_int_eq(files->size(NULL, fd), 3 * WAL_BLOCK);
	ck_assert_int_le(files->filled(NULL, fd), 3 * WAL_BLOCK);
	ck_assert_uint_ge(files->alignment(NULL, fd), 1);
	ck_assert_int_eq(files->pwritev(NULL, fd, &(struct iovec){buf, sizeof(buf)}, 1, 77), sizeof(buf));
	ck_assert_int_eq(files->sync(NULL, fd), 0);
	ck_assert_int_eq(files->preadv(NULL, fd, &(struct iovec){got, sizeof(got)}, 1, 77), sizeof(got));
	ck_assert_str_eq(got, buf);
	ck_assert_int_eq(files->unlink(NULL, directory, "blocks"), 0);
	files->close(NULL, fd);
	files->close(NULL, directory);
}
END_TEST

START_TEST(the_kernels_files)
{
	struct world w;
	struct wal_found found;
	struct wal *second;
	struct stat st;
	char path[128];

	world_on_kernel(&w, path, sizeof(path));
	for (unsigned life = 0; life < 6; life++) {
		ck_assert_int_eq(world_open(&w, &found), 0);
		world_compare(&w, &found);
		ck_assert_int_eq(wal_open(&w.config, &second), -EBUSY);
		for (unsigned i = 0; i < 100; i++)
			ck_assert_int_eq(world_step(&w), 0);
		world_set(&w, 0, 3 * WAL_SEGMENT_MIN);
		world_set(&w, 1, 64 * KIB);
		world_set(&w, 2, 64 * KIB + 1);
		while (w.handed < w.drawn)
			ck_assert_int_eq(world_write(&w, 7), 0);
		ck_assert_int_eq(world_sync(&w), 0);
		world_close(&w);
	}
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	world_destroy(&w);
	w.config.directory = "/nowhere/log";
	ck_assert_int_eq(wal_open(&w.config, &second), -ENOENT);
}
END_TEST

static int count_record(void *arg, uint64_t at, const struct wal_record *record, const char *type)
{
	unsigned *count = arg;

	ck_assert_uint_eq(at % 8, 0);
	if (strcmp(type, "COMMIT") == 0)
		count[0]++;
	else
		count[1]++;
	return record->lsn == 0 && at > HEADER ? -EINVAL : 0;
}

START_TEST(a_file_is_read_for_people)
{
	struct world w;
	struct wal_found found;
	char path[128], file[256], name[NAME_SIZE];
	unsigned count[2] = {0};
	uint64_t at, end;
	FILE *stream;

	world_on_kernel(&w, path, sizeof(path));
	ck_assert_int_eq(world_open(&w, &found), 0);
	for (unsigned i = 0; i < 5; i++) {
		world_set(&w, i, i == 3 ? 200 * KIB : 700);
		ck_assert(world_write(&w, 1) == 0 && world_sync(&w) == 0);
	}
	snprintf(file, sizeof(file), "%s/%s", path, segment_name(FILE_LOG, segment_id(&w, FILE_LOG, 0), name));
	end = HEADER + 3 * (48 + format_length(5, 0, 700));
	ck_assert_int_eq(wal_read_file(file, count_record, count, &at), 0);
	ck_assert(count[0] == 3 && count[1] == 3 && at == end);
	stream = fopen(file, "r+");
	ck_assert(stream && fseek(stream, HEADER + 200, SEEK_SET) == 0 && fputc('?', stream) == '?' &&
		  fclose(stream) == 0);
	ck_assert_int_eq(wal_read_file(file, count_record, count, &at), -EBADMSG);
	ck_assert_uint_eq(at, HEADER + 48);
	ck_assert_int_eq(wal_read_file("/nowhere", count_record, count, &at), -ENOENT);
	world_destroy(&w);
}
END_TEST

/*
 * Long values.
 */

static struct {
	const unsigned char *value;
	uint64_t len;
	uint64_t in_place; /* bytes that were written from there */
	unsigned told;
	unsigned alignment; /* of the memory that the disk takes */
} longs;

static unsigned longs_alignment(void *arg, int fd)
{
	return longs.alignment;
}

static ssize_t longs_pwritev(void *arg, int fd, const struct iovec *iov, int n, uint64_t at)
{
	for (int i = 0; i < n; i++) {
		const unsigned char *from = iov[i].iov_base;

		if (longs.value && from >= longs.value && from < longs.value + longs.len) {
			ck_assert(from + iov[i].iov_len <= longs.value + longs.len);
			ck_assert_uint_eq((uintptr_t)from % longs.alignment, 0);
			longs.in_place += iov[i].iov_len;
		}
	}
	return wal_files_kernel.pwritev(arg, fd, iov, n, at);
}

static unsigned char long_byte(uint64_t lsn, uint64_t i)
{
	return (unsigned char)(lsn * 31 + i + i / 253);
}

static int longs_place(void *arg, const struct wal_record *record, void **value)
{
	*value = malloc(record->value_len);
	return *value ? 0 : -ENOMEM;
}

static int longs_record(void *arg, const struct wal_record *record)
{
	const unsigned char *value = record->value;
	uint64_t same = 0;

	longs.told++;
	while (same < record->value_len && value[same] == long_byte(record->lsn, same))
		same++;
	ck_assert_uint_eq(same, record->value_len);
	if (record->value_len > FORMAT_WHOLE_MAX)
		free((void *)value);
	return 0;
}

/* One group has a value of each kind; `from` is memory for all of them. */
static void longs_write(struct wal *wal, unsigned char *from, uint64_t *lsn)
{
	static const uint64_t lens[] = {16 * KIB, 16 * KIB + 1, 64 * KIB, 64 * KIB + 1, MIB + 13, 5 * MIB};
	static const unsigned aside[] = {0, 1, 63, 64, 511, 512, 4095};
	static const char key[600] = "key";

	for (unsigned i = 0; i < ARRAY_SIZE(lens) * ARRAY_SIZE(aside); i++) {
		const uint64_t len = lens[i % ARRAY_SIZE(lens)];
		unsigned char *value = from + aside[i / ARRAY_SIZE(lens)];
		struct wal_record r[3];

		for (unsigned k = 0; k < 3; k++)
			r[k] = (struct wal_record){.type = WAL_SET,
						   .lsn = ++*lsn,
						   .expires = WAL_NEVER,
						   .key = key,
						   .key_len = (uint16_t)(1 + i * 53 % sizeof(key)),
						   .value = from,
						   .value_len = 0};
		r[1].value = value;
		r[1].value_len = len;
		for (uint64_t b = 0; b < len; b++)
			value[b] = long_byte(r[1].lsn, b);
		longs.value = value;
		longs.len = len;
		longs.in_place = 0;
		ck_assert_int_eq(wal_write(wal, r, 3), 0);
		if (longs.alignment == WAL_ALIGNMENT)
			ck_assert_uint_ge(longs.in_place, len - 2 * WAL_BLOCK);
		longs.len = 0;
		ck_assert_int_eq(wal_sync(wal), 0);
	}
}

static void longs_cycle(unsigned alignment)
{
	struct wal_files files = wal_files_kernel;
	char path[128];
	const struct wal_config config = {.directory = path, .segment = 4 * MIB, .files = &files};
	const struct wal_reader reader = {.place = longs_place, .record = longs_record};
	unsigned char *from = malloc(6 * MIB);
	struct wal_found found;
	struct wal *wal;
	uint64_t lsn = 0;

	ck_assert_ptr_nonnull(from);
	files.pwritev = longs_pwritev;
	files.alignment = longs_alignment;
	longs.alignment = alignment;
	longs.told = 0;
	snprintf(path, sizeof(path), "%s/log-%u", home, alignment);
	ck_assert(wal_open(&config, &wal) == 0 && wal_recover(wal, &reader, &found) == 0);
	longs_write(wal, from, &lsn);
	wal_close(wal);
	ck_assert(wal_open(&config, &wal) == 0 && wal_recover(wal, &reader, &found) == 0);
	ck_assert(found.last == lsn && longs.told == lsn);
	wal_close(wal);
	free(from);
}

/* Nothing but the parts of a block at both ends of a long value is copied on its way to the disk. */
START_TEST(long_values_are_written_from_where_they_are)
{
	longs_cycle(WAL_ALIGNMENT);
}
END_TEST

/* A disk that wants other memory never sees any that it does not take: it might write something else. */
START_TEST(a_disk_gets_memory_as_it_takes_it)
{
	longs_cycle(WAL_BLOCK);
}
END_TEST

/* More pieces in a group than go to the disk at once, which does less than it is asked for, gets full meanwhile and tears. */
START_TEST(a_group_of_many_long_values)
{
	for (unsigned seed = 1; seed <= suite_part(16); seed++) {
		struct world w;
		struct wal_found found;
		int rc;

		world_create(&w, seed);
		w.config.segment = 24 * MIB; /* it lasts: so nothing is called but writes */
		ck_assert_int_eq(world_open(&w, &found), 0);
		for (unsigned group = 0; group < 4; group++) {
			for (unsigned i = 0; i < 64; i++)
				world_set(&w, i % WORLD_KEYS,
					  world_draw(&w, 16) ? 16 * KIB + world_draw(&w, 44000) : 9);
			disk_fail(w.disk, 1 + (unsigned)world_draw(&w, 4), ENOSPC, false);
			do
				rc = world_write(&w, 64);
			while (rc == -ENOSPC);
			ck_assert_int_eq(rc, 0);
			disk_fail(w.disk, 0, 0, false);
			if (group % 2)
				ck_assert_int_eq(world_sync(&w), 0);
		}
		world_close(&w);
		disk_crash(w.disk);
		ck_assert_int_eq(world_open(&w, &found), 0);
		world_compare(&w, &found);
		world_destroy(&w);
	}
}
END_TEST

/*
 * Two threads.
 */

static struct {
	struct wal *wal;
	_Atomic uint64_t drawn;
	_Atomic bool done;
} pair;

static void *pair_checkpoints(void *arg)
{
	unsigned *made = arg;

	while (!pair.drawn)
		usleep(100);
	while (!pair.done) {
		const uint64_t lsn = pair.drawn;
		int rc;

		ck_assert_int_eq(wal_checkpoint_begin(pair.wal, lsn), 0);
		for (unsigned i = 0; i < 64; i++) {
			const struct wal_record r = {.type = WAL_SET,
						     .lsn = lsn,
						     .key = &i,
						     .key_len = sizeof(i),
						     .value = home,
						     .value_len = sizeof(home)};

			ck_assert_int_eq(wal_checkpoint_write(pair.wal, &r, 1), 0);
		}
		while ((rc = wal_checkpoint_end(pair.wal, pair.drawn)) == -EAGAIN && !pair.done)
			usleep(100);
		ck_assert(rc == 0 || rc == -EAGAIN);
		if (rc)
			wal_checkpoint_abandon(pair.wal);
		*made += rc == 0;
	}
	return NULL;
}

static int pair_told(void *arg, const struct wal_record *record)
{
	uint64_t *last = arg;

	*last = MAX(*last, record->lsn);
	return 0;
}

START_TEST(two_threads)
{
	static unsigned char value[3000];
	char path[128];
	const struct wal_config config = {.directory = path, .segment = WAL_SEGMENT_MIN};
	uint64_t last = 0;
	const struct wal_reader reader = {.arg = &last, .record = pair_told};
	struct wal_found found;
	unsigned ended = 0, made = 0;
	pthread_t thread;

	snprintf(path, sizeof(path), "%s/log", home);
	ck_assert(wal_open(&config, &pair.wal) == 0 && wal_recover(pair.wal, &reader, &found) == 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, pair_checkpoints, &ended), 0);
	for (uint64_t lsn = 1; lsn <= 2000 || made < 3; lsn++) {
		const struct wal_record r = {.type = WAL_SET,
					     .lsn = lsn,
					     .key = "key",
					     .key_len = 3,
					     .value = value,
					     .value_len = lsn % sizeof(value)};
		struct wal_info info;

		pair.drawn = lsn;
		ck_assert_int_eq(wal_write(pair.wal, &r, 1), 0);
		if (lsn % 4 == 0)
			ck_assert_int_eq(wal_sync(pair.wal), 0);
		wal_get_info(pair.wal, &info);
		ck_assert_uint_eq(info.written, lsn);
		made = (unsigned)info.checkpoints;
	}
	pair.done = true;
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_ge(ended, 3);
	wal_close(pair.wal);
	ck_assert(wal_open(&config, &pair.wal) == 0 && wal_recover(pair.wal, &reader, &found) == 0);
	ck_assert_uint_eq(last, pair.drawn);
	wal_close(pair.wal);
}
END_TEST

/* Files that are kept for people are none; a file system that does not say what it has is not taken for a full one. */
START_TEST(room_on_the_disk)
{
	const struct wal_files *files = &wal_files_kernel;
	const uint64_t size = 64 * MIB;
	int directory = files->open(NULL, -1, home, O_RDONLY | O_DIRECTORY), fd;
	int64_t with, without;
	char spare[NAME_SIZE], kept[NAME_SIZE];

	segment_name(FILE_SPARE, 7, spare);
	segment_name(FILE_DAMAGED, 7, kept);
	ck_assert_int_ge(directory, 0);
	fd = files->open(NULL, directory, spare, O_RDWR | O_CREAT);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(files->allocate(NULL, fd, size), 0);
	with = files->room(NULL, directory);
	ck_assert_int_eq(files->rename(NULL, directory, spare, kept), 0);
	without = files->room(NULL, directory);
	ck_assert_int_gt(with - without, (int64_t)size / 2); /* others write there, too */
	ck_assert_int_eq(files->unlink(NULL, directory, kept), 0);
	files->close(NULL, fd);
	files->close(NULL, directory);
	directory = files->open(NULL, -1, "/proc", O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(directory, 0);
	ck_assert_int_lt(files->room(NULL, directory), 0);
	files->close(NULL, directory);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("log");
	TCase *tc;

	log_set_handler(log_keep);
	tcase_add_loop_test(suite_case(s, "crash", NULL, NULL), crashes, 0, 8);
	tcase_add_test(suite_case(s, "flip", NULL, NULL), every_byte_flipped);
	tcase_add_test(suite_case(s, "cut", NULL, NULL), every_length);

	tc = suite_case(s, "damage", NULL, NULL);
	tcase_add_test(tc, what_was_durable_is_damage);
	tcase_add_test(tc, what_is_lost_stays);
	tcase_add_test(tc, what_is_marked_is_damage);
	tcase_add_test(tc, a_mark_that_is_damaged);
	tcase_add_test(tc, a_flush_is_no_mark);
	tcase_add_test(tc, a_file_that_is_removed_is_noticed);
	tcase_add_test(tc, the_last_group_may_be_torn);
	tcase_add_test(tc, an_earlier_life_is_not_read);
	tcase_add_test(tc, a_closed_segment_is_whole);
	tcase_add_test(tc, a_short_file_is_named);
	tcase_add_test(tc, a_damaged_checkpoint_is_refused);
	tcase_add_test(tc, no_manifest_is_no_empty_log);
	tcase_add_test(tc, types_of_later_times);
	tcase_add_test(tc, attributes_are_refused_by_former_readers);
	tcase_add_test(tc, gaps_that_cannot_be);
	tcase_add_test(tc, the_format_before_is_read);
	tcase_add_test(tc, formats_of_later_times);

	tc = suite_case(s, "errors", NULL, NULL);
	tcase_add_test(tc, errors_at_each_call);
	tcase_add_test(tc, errors_of_permission_are_told);
	tcase_add_test(tc, a_log_is_read_alone);
	tcase_add_test(tc, a_sync_is_not_tried_again);
	tcase_add_test(tc, a_group_without_room_leaves_nothing);
	tcase_add_test(tc, a_group_of_many_long_values);

	tc = suite_case(s, "room", NULL, NULL);
	tcase_add_test(tc, a_full_disk_says_so_before);
	tcase_add_test(tc, a_checkpoint_makes_room_for_the_log);
	tcase_add_test(tc, a_long_change_gets_room);
	tcase_add_test(tc, a_small_disk_has_short_segments);
	tcase_add_test(tc, a_log_begins_on_a_full_disk);
	tcase_add_test(tc, a_spare_gives_way);
	tcase_add_test(tc, segments_are_recycled);
	tcase_add_test(tc, what_counts_for_nothing_goes);

	tc = suite_case(s, "kernel", home_up, home_down);
	tcase_add_test(tc, the_kernels_files);
	tcase_add_test(tc, blocks_of_another_size);
	tcase_add_test(tc, a_file_is_read_for_people);
	tcase_add_test(tc, long_values_are_written_from_where_they_are);
	tcase_add_test(tc, a_disk_gets_memory_as_it_takes_it);
	tcase_add_test(tc, two_threads);
	tcase_add_test(tc, room_on_the_disk);
	return s;
}

int main(void)
{
	return suite_run(suite());
}
