/* commands.c: the table of commands, what is found in it, and what COMMAND answers of it. */
#include "resp/resp.h"

const struct resp_command resp_commands[RESP_IDS] = {
#define ROW(id, ...) [RESP_CMD_##id] = {ROW_(RESP_CMD_##id, __VA_ARGS__)},
#define ROW_(id, name, ...) name, id, __VA_ARGS__
	RESP_COMMAND_ROWS(ROW) RESP_SUBCOMMAND_ROWS(ROW)
#undef ROW_
#undef ROW
};

/* Of Redis 7.2, and not of rdmad. Sorted. */
static const char *const refused[] = {
	"bitcount",
	"bitfield",
	"bitfield_ro",
	"bitop",
	"bitpos",
	"blmove",
	"blmpop",
	"blpop",
	"brpop",
	"brpoplpush",
	"bzmpop",
	"bzpopmax",
	"bzpopmin",
	"dump",
	"failover",
	"fcall",
	"fcall_ro",
	"geoadd",
	"geodist",
	"geohash",
	"geopos",
	"georadius",
	"georadius_ro",
	"georadiusbymember",
	"georadiusbymember_ro",
	"geosearch",
	"geosearchstore",
	"getbit",
	"lcs",
	"lindex",
	"linsert",
	"llen",
	"lmove",
	"lmpop",
	"lolwut",
	"lpop",
	"lpos",
	"lpush",
	"lpushx",
	"lrange",
	"lrem",
	"lset",
	"ltrim",
	"migrate",
	"monitor",
	"move",
	"pfadd",
	"pfcount",
	"pfdebug",
	"pfmerge",
	"pfselftest",
	"psync",
	"replconf",
	"replicaof",
	"restore",
	"restore-asking",
	"rpop",
	"rpoplpush",
	"rpush",
	"rpushx",
	"sadd",
	"scard",
	"sdiff",
	"sdiffstore",
	"setbit",
	"sinter",
	"sintercard",
	"sinterstore",
	"sismember",
	"slaveof",
	"smembers",
	"smismember",
	"smove",
	"sort",
	"sort_ro",
	"spop",
	"srandmember",
	"srem",
	"sscan",
	"sunion",
	"sunionstore",
	"swapdb",
	"sync",
	"waitaof",
	"xack",
	"xadd",
	"xautoclaim",
	"xclaim",
	"xdel",
	"xgroup",
	"xinfo",
	"xlen",
	"xpending",
	"xrange",
	"xread",
	"xreadgroup",
	"xrevrange",
	"xsetid",
	"xtrim",
	"zadd",
	"zcard",
	"zcount",
	"zdiff",
	"zdiffstore",
	"zincrby",
	"zinter",
	"zintercard",
	"zinterstore",
	"zlexcount",
	"zmpop",
	"zmscore",
	"zpopmax",
	"zpopmin",
	"zrandmember",
	"zrange",
	"zrangebylex",
	"zrangebyscore",
	"zrangestore",
	"zrank",
	"zrem",
	"zremrangebylex",
	"zremrangebyrank",
	"zremrangebyscore",
	"zrevrange",
	"zrevrangebylex",
	"zrevrangebyscore",
	"zrevrank",
	"zscan",
	"zscore",
	"zunion",
	"zunionstore",
};

/*
 * Names are found by what they hash to. A name of at most 16 bytes is two words, which overlap, and its length: so it
 * is compared without looking at bytes, and in any case.
 */
#define NAME_MAX_BYTES 16
#define SLOTS 512 /* a power of two, more than twice as many as there are names */
#define NO_PARENT UINT16_MAX

struct name {
	uint64_t front, back;
	uint16_t len, parent; /* the command of a subcommand, or NO_PARENT */
};

static struct {
	struct name name; /* len 0: free */
	uint16_t id;
} slots[SLOTS];

static struct {
	uint16_t first, count;
} subs[RESP_COMMANDS];

/* Eight bytes at once; those with the high bit are no letters. */
static uint64_t lower_eight(uint64_t bytes)
{
	const uint64_t ones = UINT64_MAX / 255;
	uint64_t low = bytes & 0x7f * ones;
	uint64_t from_a = low + (0x80 - 'A') * ones, beyond_z = low + (0x7f - 'Z') * ones;

	return bytes | (((from_a & ~beyond_z & ~bytes) & 0x80 * ones) >> 2);
}

/* 1 <= len <= NAME_MAX_BYTES */
static struct name name_of(const char *text, size_t len, uint16_t parent)
{
	struct name name = {.len = (uint16_t)len, .parent = parent};

	if (len >= 8) {
		memcpy(&name.front, text, 8);
		memcpy(&name.back, text + len - 8, 8);
	} else if (len >= 4) {
		uint32_t half[2]; /* not into the words themselves: they are read whole at once, which would wait */

		memcpy(&half[0], text, 4);
		memcpy(&half[1], text + len - 4, 4);
		name.front = half[0];
		name.back = half[1];
	} else {
		name.front = (uint64_t)(uint8_t)text[0] | (uint64_t)(uint8_t)text[len / 2] << 8 |
			     (uint64_t)(uint8_t)text[len - 1] << 16;
	}
	name.front = lower_eight(name.front);
	name.back = lower_eight(name.back);
	return name;
}

/* Its slot, or the free one where it would be. */
static unsigned find_slot(const struct name *name)
{
	uint64_t mix = (name->front ^ (name->back << 29 | name->back >> 35) ^ (uint64_t)name->parent << 48) *
		       0x9e3779b97f4a7c15;
	unsigned at = (unsigned)(mix >> 55);

	while (slots[at].name.len && (slots[at].name.front != name->front || slots[at].name.back != name->back ||
				      slots[at].name.len != name->len || slots[at].name.parent != name->parent))
		at = (at + 1) % SLOTS;
	return at;
}

static void table_enter(const char *text, uint16_t parent, unsigned id)
{
	struct name name = name_of(text, strlen(text), parent);
	unsigned at = find_slot(&name);

	slots[at].name = name;
	slots[at].id = (uint16_t)id;
}

/* Before main(), so that the tables do not change. */
__attribute__((constructor)) static void enter_all(void)
{
	_Static_assert(1ull << 9 == SLOTS && SLOTS > 2 * RESP_IDS, "find_slot() takes 9 bits");

	for (unsigned id = 0; id < RESP_COMMANDS; id++)
		table_enter(resp_commands[id].name, NO_PARENT, id);
	for (unsigned id = RESP_COMMANDS; id < RESP_IDS; id++) {
		const char *name = resp_commands[id].name, *bar = strchr(name, '|');
		unsigned parent = resp_find(name, (size_t)(bar - name))->id;

		table_enter(bar + 1, (uint16_t)parent, id);
		if (!subs[parent].count++)
			subs[parent].first = (uint16_t)id;
	}
}

static const struct resp_command *find_child(const char *text, size_t len, uint16_t parent)
{
	struct name name;
	unsigned at;

	if (!len || len > NAME_MAX_BYTES)
		return NULL;
	name = name_of(text, len, parent);
	at = find_slot(&name);
	return slots[at].name.len ? &resp_commands[slots[at].id] : NULL;
}

const struct resp_command *resp_find(const char *name, size_t len)
{
	return find_child(name, len, NO_PARENT);
}

const struct resp_command *resp_find_sub(const struct resp_command *of, const char *name, size_t len)
{
	return find_child(name, len, (uint16_t)of->id);
}

bool resp_has_subs(const struct resp_command *command)
{
	return command->id < RESP_COMMANDS && subs[command->id].count;
}

bool resp_is_refused(const char *name, size_t len)
{
	size_t low = 0, high = ARRAY_SIZE(refused);

	while (low < high) {
		const char *middle = refused[(low + high) / 2];
		size_t i = 0;

		while (i < len && middle[i] && resp_lower(name[i]) == middle[i])
			i++;
		if (i == len && !middle[i])
			return true;
		if (i == len || (middle[i] && (unsigned char)resp_lower(name[i]) < (unsigned char)middle[i]))
			high = (low + high) / 2;
		else
			low = (low + high) / 2 + 1;
	}
	return false;
}

/*
 * Keys.
 */

/* Where a number of keys stands, behind which they are; 0: elsewhere. */
static unsigned key_count_at(const struct resp_command *command, unsigned *step)
{
	*step = command->id == RESP_CMD_MSETEX ? 2 : 1;
	switch (command->id) {
	case RESP_CMD_MSETEX:
		return 1;
	case RESP_CMD_EVAL:
	case RESP_CMD_EVALSHA:
	case RESP_CMD_EVAL_RO:
	case RESP_CMD_EVALSHA_RO:
		return 2;
	}
	return 0;
}

struct resp_keys resp_keys(const struct resp_command *command, const struct resp_arg *argv, unsigned argc)
{
	unsigned step, counter = key_count_at(command, &step), first = (unsigned)command->first, last;
	int64_t number;

	if (counter) {
		if (counter >= argc || !resp_read_int64(argv[counter].at, argv[counter].len, &number) || number < 1 ||
		    number > (argc - counter - 1) / step)
			return (struct resp_keys){0};
		return (struct resp_keys){counter + 1, step, (unsigned)number};
	}
	if (!first || command->group == RESP_PUBSUB_GROUP) /* channels are no keys */
		return (struct resp_keys){0};
	step = (unsigned)command->step;
	last = command->last < 0 ? argc + (unsigned)command->last : (unsigned)command->last;
	last = MIN(last, argc - 1);
	return (struct resp_keys){first, step, first <= last ? (last - first) / step + 1 : 0};
}

/*
 * COMMAND.
 */
static const struct {
	unsigned flag;
	const char *name;
} flag_names[] = {
	/* in the order of Redis */
	{RESP_WRITE, "write"},
	{RESP_READONLY, "readonly"},
	{RESP_DENYOOM, "denyoom"},
	{RESP_ADMIN, "admin"},
	{RESP_PUBSUB, "pubsub"},
	{RESP_NOSCRIPT, "noscript"},
	{RESP_BLOCKING, "blocking"},
	{RESP_LOADING, "loading"},
	{RESP_STALE, "stale"},
	{RESP_SKIP_MONITOR, "skip_monitor"},
	{RESP_SKIP_SLOWLOG, "skip_slowlog"},
	{RESP_FAST, "fast"},
	{RESP_NO_AUTH, "no_auth"},
	{RESP_NO_MANDATORY_KEYS, "no_mandatory_keys"},
	{RESP_NO_ASYNC_LOADING, "no_async_loading"},
	{RESP_NO_MULTI, "no_multi"},
	{RESP_MOVABLE_KEYS, "movablekeys"},
	{RESP_ALLOW_BUSY, "allow_busy"},
};

static const char *const group_names[] = {
	[RESP_STRING] = "string",       [RESP_GENERIC] = "generic",           [RESP_CONNECTION] = "connection",
	[RESP_SERVER] = "server",       [RESP_TRANSACTIONS] = "transactions", [RESP_PUBSUB_GROUP] = "pubsub",
	[RESP_SCRIPTING] = "scripting", [RESP_CLUSTER] = "cluster",           [RESP_HASH] = "hash",
};

/* Redis's categories of its ACL, as far as a command here has one; in its order. */
enum {
	KEYSPACE = 1u << 0,
	READ = 1u << 1,
	WRITE = 1u << 2,
	HASH = 1u << 3,
	STRING = 1u << 4,
	PUBSUB = 1u << 5,
	ADMIN = 1u << 6,
	FAST = 1u << 7,
	SLOW = 1u << 8,
	BLOCKING = 1u << 9,
	DANGEROUS = 1u << 10,
	CONNECTION = 1u << 11,
	TRANSACTION = 1u << 12,
	SCRIPTING = 1u << 13,
};

static const char *const category_names[] = {
	"@keyspace", "@read", "@write",    "@hash",      "@string",     "@pubsub",      "@admin",
	"@fast",     "@slow", "@blocking", "@dangerous", "@connection", "@transaction", "@scripting",
};

/* The category that a command has for what it is about. */
static unsigned group_category(const struct resp_command *command)
{
	static const unsigned of_group[] = {
		[RESP_STRING] = STRING,       [RESP_GENERIC] = KEYSPACE,         [RESP_CONNECTION] = CONNECTION,
		[RESP_SCRIPTING] = SCRIPTING, [RESP_TRANSACTIONS] = TRANSACTION, [RESP_HASH] = HASH,
	};

	switch (command->id) {
	case RESP_CMD_DBSIZE:
	case RESP_CMD_FLUSHDB:
	case RESP_CMD_FLUSHALL:
		return KEYSPACE;
	case RESP_CMD_LASTSAVE:
		return ADMIN;
	case RESP_CMD_COMMAND:
	case RESP_CMD_ASKING:
	case RESP_CMD_READONLY:
	case RESP_CMD_READWRITE:
	case RESP_CMD_WAIT:
		return CONNECTION;
	}
	if (resp_has_subs(command))
		return 0;
	if (strncmp(command->name, "command|", 8) == 0)
		return CONNECTION;
	return command->group < ARRAY_SIZE(of_group) ? of_group[command->group] : 0;
}

static unsigned category_set(const struct resp_command *command)
{
	unsigned flags = command->flags, set = group_category(command);

	set |= flags & RESP_WRITE ? WRITE : 0;
	set |= flags & RESP_READONLY && command->group != RESP_SCRIPTING ? READ : 0;
	set |= flags & RESP_ADMIN ? ADMIN | DANGEROUS : 0;
	set |= flags & RESP_DANGEROUS ? DANGEROUS : 0;
	set |= flags & RESP_PUBSUB ? PUBSUB : 0;
	set |= flags & RESP_BLOCKING ? BLOCKING : 0;
	return set | (flags & RESP_FAST ? FAST : SLOW);
}

static void tell_flags(struct resp_out *out, unsigned flags)
{
	unsigned count = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(flag_names); i++)
		count += (flags & flag_names[i].flag) != 0;
	resp_set(out, count);
	for (unsigned i = 0; i < ARRAY_SIZE(flag_names); i++)
		if (flags & flag_names[i].flag)
			resp_simple(out, flag_names[i].name);
}

static void tell_categories(struct resp_out *out, unsigned set)
{
	resp_set(out, (size_t)__builtin_popcount(set));
	for (unsigned i = 0; i < ARRAY_SIZE(category_names); i++)
		if (set & 1u << i)
			resp_simple(out, category_names[i]);
}

static void tell_pair(struct resp_out *out, const char *name, int64_t number)
{
	resp_bulk_text(out, name);
	resp_number(out, number);
}

/* "begin_search" or "find_keys" of a type, with so many numbers, which follow. */
static void tell_step(struct resp_out *out, const char *name, const char *type, size_t numbers)
{
	resp_bulk_text(out, name);
	resp_map(out, 2);
	resp_bulk_text(out, "type");
	resp_bulk_text(out, type);
	resp_bulk_text(out, "spec");
	resp_map(out, numbers);
}

static void tell_keys(struct resp_out *out, const struct resp_command *command)
{
	unsigned step, counter = key_count_at(command, &step);
	bool only_reads = command->flags & RESP_READONLY || command->id == RESP_CMD_WATCH;

	resp_set(out, counter || command->first);
	if (!counter && !command->first)
		return;
	resp_map(out, 3);
	resp_bulk_text(out, "flags");
	resp_set(out, 1);
	resp_simple(out, command->group == RESP_PUBSUB_GROUP ? "not_key" : only_reads ? "RO" : "RW");
	tell_step(out, "begin_search", "index", 1);
	tell_pair(out, "index", counter ? (int)counter : command->first);
	tell_step(out, "find_keys", counter ? "keynum" : "range", 3);
	if (counter) {
		tell_pair(out, "keynumidx", 0);
		tell_pair(out, "firstkey", 1);
		tell_pair(out, "keystep", step);
	} else {
		tell_pair(out, "lastkey", command->last < 0 ? command->last : command->last - command->first);
		tell_pair(out, "keystep", command->step);
		tell_pair(out, "limit", 0);
	}
}

void resp_tell_command(struct resp_out *out, const struct resp_command *command)
{
	unsigned count = resp_has_subs(command) ? subs[command->id].count : 0;

	resp_array(out, 10);
	resp_bulk_text(out, command->name);
	resp_number(out, command->arity);
	tell_flags(out, command->flags);
	resp_number(out, command->first);
	resp_number(out, command->last);
	resp_number(out, command->step);
	tell_categories(out, category_set(command));
	resp_set(out, 0); /* tips */
	tell_keys(out, command);
	resp_set(out, count);
	for (unsigned i = 0; i < count; i++)
		resp_tell_command(out, &resp_commands[subs[command->id].first + i]);
}

void resp_tell_docs(struct resp_out *out, const struct resp_command *command)
{
	unsigned count = resp_has_subs(command) ? subs[command->id].count : 0;
	const char *const pairs[][2] = {
		{"summary", command->summary},
		{"since", command->since},
		{"group", group_names[command->group]},
		{"complexity", command->complexity},
	};

	resp_bulk_text(out, command->name);
	resp_map(out, ARRAY_SIZE(pairs) + (count > 0));
	for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++) {
		resp_bulk_text(out, pairs[i][0]);
		resp_bulk_text(out, pairs[i][1]);
	}
	if (!count)
		return;
	resp_bulk_text(out, "subcommands");
	resp_map(out, count);
	for (unsigned i = 0; i < count; i++)
		resp_tell_docs(out, &resp_commands[subs[command->id].first + i]);
}
