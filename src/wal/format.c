/* format.c: headers and checksums. */
#include "wal/format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct format_summer), "a summer holds xxHash's state");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct format_summer), "where it wants it");

uint64_t format_seed(const uint8_t store[static FORMAT_STORE], uint64_t id)
{
	uint64_t secret;

	memcpy(&secret, store, sizeof(secret));
	return secret + id;
}

void format_header_seal(struct format_header *header)
{
	memcpy(header->magic, FORMAT_MAGIC, sizeof(header->magic));
	header->format = FORMAT_VERSION;
	header->checksum = format_sum(header, offsetof(struct format_header, checksum), 0);
}

bool format_header_whole(const struct format_header *header)
{
	return header->checksum == format_sum(header, offsetof(struct format_header, checksum), 0);
}

uint64_t format_sum(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}

void format_sum_begin(struct format_summer *summer, uint64_t seed)
{
	XXH3_state_t *state = (void *)summer;

	XXH3_INITSTATE(state);
	XXH3_64bits_reset_withSeed(state, seed);
}

void format_sum_add(struct format_summer *summer, const void *data, size_t len)
{
	XXH3_64bits_update((void *)summer, data, len);
}

uint64_t format_sum_end(const struct format_summer *summer)
{
	return XXH3_64bits_digest((const void *)summer);
}

bool format_plausible(const struct format_record *r, uint64_t room)
{
	uint64_t key_len = format_key_len(r), behind = r->lengths & FORMAT_VALUE_MAX, gap = format_gap(r);

	if (!r->type || key_len > WAL_KEY_MAX || behind > room || gap >= FORMAT_GAP ||
	    (r->type == WAL_SET && r->version != gap) || (r->type == FORMAT_ITEM && gap > behind))
		return false;
	return format_length(key_len, gap, format_value_len(r)) <= room;
}

bool format_sound(const struct format_record *r)
{
	bool key = format_key_len(r) > 0, value = format_value_len(r) > 0;

	switch (r->type) {
	case WAL_SET:
	case FORMAT_ITEM:
		return key && r->lsn;
	case WAL_DELETE:
	case WAL_EXPIRE:
		return key && !value && r->lsn;
	case WAL_FLUSH:
		return !key && !value && r->lsn;
	case FORMAT_COMMIT:
	case FORMAT_CHECKPOINT_END:
		return !key && !value;
	default:
		return true;
	}
}

const char *format_type_name(unsigned type, char buf[static 16])
{
	static const char *const name[] = {
		[WAL_SET] = "SET",     [WAL_DELETE] = "DELETE",    [WAL_EXPIRE] = "EXPIRE",
		[WAL_FLUSH] = "FLUSH", [FORMAT_COMMIT] = "COMMIT", [FORMAT_CHECKPOINT_END] = "CHECKPOINT-END",
		[FORMAT_ITEM] = "ITEM"};

	if (type < ARRAY_SIZE(name) && name[type])
		return name[type];
	snprintf(buf, 16, "type %u", type);
	return buf;
}
