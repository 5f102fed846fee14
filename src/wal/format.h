/*
 * format.h: the bytes of a segment, see rdmad-log(7). Nothing here reads or writes a file.
 */
#ifndef RDMAD_WAL_FORMAT_H
#define RDMAD_WAL_FORMAT_H

#include "wal/wal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are overlaid on the file's little endian");

#define FORMAT_VERSION 2 /* that is written; 1, whose records have no gaps, is read as well */
#define FORMAT_MAGIC "rdmadlog"
#define FORMAT_STORE 16 /* bytes of a store's id */

enum format_kind { FORMAT_LOG = 1, FORMAT_CHECKPOINT };

/* Types beside enum wal_type, which no caller uses. An ITEM is a WAL_SET with attributes. A reader that does not know
 * it refuses it: so a log without any is read by an older rdmad as well. */
enum { FORMAT_COMMIT = 5, FORMAT_CHECKPOINT_END, FORMAT_ITEM, FORMAT_TYPES };
#define FORMAT_TYPE_IGNORED 128 /* and above: passed over by readers that do not know them */

/* A segment's head. */
struct format_header {
	char magic[8];
	uint32_t format;
	uint32_t kind;
	uint8_t store[FORMAT_STORE];
	uint64_t id;
	uint64_t before; /* the highest LSN before it; of a checkpoint: all of the log up to here is in it */
	uint64_t size;   /* that its file has at least; of a checkpoint 0 */
	uint64_t given;  /* of the log: no number up to this one is given out any more; 0: not told */
	uint8_t reserved[4024];
	uint64_t checksum;
};
_Static_assert(sizeof(struct format_header) == 4096, "a segment's header");

/* A record's head; the key, a gap of zeros, the value and zeros up to a multiple of 8 are behind it. */
struct format_record {
	uint64_t checksum;
	uint64_t lsn;
	uint64_t lengths; /* 48 bits of the value, of ITEM with the gap, 16 of the key */
	uint64_t expires; /* of COMMIT: bytes of its group, with itself */
	union {
		struct {
			uint8_t type;
			uint8_t flags;
			uint16_t slot;
			uint32_t epoch;
		};
		uint64_t kind; /* all of these, for a writer */
	};
	uint64_t
		/* of SET: bytes of its gap; of ITEM: 16 bits of that, 8 of its type, 8 reserved, 32 of its flags; of
		 * COMMIT: what was durable then; of CHECKPOINT-END: its records */
		version;
};
_Static_assert(sizeof(struct format_record) == 48, "a record's header");

#define FORMAT_VALUE_MAX ((1ull << 48) - 1)
/* A gap is shorter: it makes a value lie in the file as it does in memory, but for a multiple of this. */
#define FORMAT_GAP WAL_ALIGNMENT
/* A value up to here is in memory with its record when that is checked; a longer one is placed. */
#define FORMAT_WHOLE_MAX (64 * KIB)

static inline uint16_t format_key_len(const struct format_record *r)
{
	return (uint16_t)(r->lengths >> 48);
}

static inline bool format_is_set(const struct format_record *r)
{
	return r->type == WAL_SET || r->type == FORMAT_ITEM;
}

/* These of a head that is plausible. */
static inline uint16_t format_gap(const struct format_record *r)
{
	return format_is_set(r) ? (uint16_t)r->version : 0;
}

static inline uint64_t format_value_len(const struct format_record *r)
{
	return (r->lengths & FORMAT_VALUE_MAX) - (r->type == FORMAT_ITEM ? format_gap(r) : 0);
}

/* Bytes of a record in front of its value. */
static inline size_t format_head(const struct format_record *r)
{
	return sizeof(*r) + format_key_len(r) + format_gap(r);
}

/* Bytes of a record with all that is behind its header. */
static inline uint64_t format_length(uint64_t key_len, uint64_t gap, uint64_t value_len)
{
	return (sizeof(struct format_record) + key_len + gap + value_len + 7) & ~7ull;
}

/* The seed of the checksums of a segment's records. The id makes checksums of the file's earlier lives wrong; the
 * store's id, which no client knows, keeps records out that a client put into a value. */
uint64_t format_seed(const uint8_t store[static FORMAT_STORE], uint64_t id);

void format_header_seal(struct format_header *header);
bool format_header_whole(const struct format_header *header);

/* The checksum of bytes in one piece, a record's header without its checksum, key, gap and value ... */
uint64_t format_sum(const void *data, size_t len, uint64_t seed);
/* ... or in several. */
struct format_summer {
	_Alignas(64) unsigned char state[576];
};
void format_sum_begin(struct format_summer *summer, uint64_t seed);
void format_sum_add(struct format_summer *summer, const void *data, size_t len);
uint64_t format_sum_end(const struct format_summer *summer);

/* Whether a header may be one of a record that ends within `room` bytes from its begin: before its checksum is
 * known. */
bool format_plausible(const struct format_record *r, uint64_t room);
/* Whether a record whose checksum fits says what its type can: no writer makes another. */
bool format_sound(const struct format_record *r);

/* "SET", "COMMIT"; of others "type 99", in `buf`. */
const char *format_type_name(unsigned type, char buf[static 16]);

#endif
