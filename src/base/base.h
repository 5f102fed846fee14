/*
 * base: tools for every other room. Log, time, units, addresses, histogram, hash, quota,
 * intrusive list, pending connections, single-producer ring, contracts. It knows nothing of RDMA.
 *
 * Inside rdmad a function answers 0 (or a count) or a negative errno. The first
 * function that detects a failure logs it; the others only pass it on.
 */
#ifndef RDMAD_BASE_H
#define RDMAD_BASE_H

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - (offsetof(type, member))))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/*
 * must.c: contracts that run. A header's promise of threads, locks and states stands as must(condition) on the first
 * lines of the function that relies on it. Builds with --enable-contracts (--enable-sanitizers implies it) check it and
 * abort with the condition and its place. Others do not evaluate it, so it has no effect, but on what contracts alone
 * look at.
 */
void must_fail(const char *condition, const char *function, const char *file, int line) __attribute__((noreturn, cold));
#ifdef RDMAD_CONTRACTS
#define must(condition) (likely(condition) ? (void)0 : must_fail(#condition, __func__, __FILE__, __LINE__))
#else
#define must(condition) ((void)(false && (condition)))
#endif

/* The calling thread, never 0: keep it where something belongs to one thread or a lock is held, and compare. */
uintptr_t thread_self(void);

#define CACHE_LINE 64

/* This line will be written, though another processor has it. Compilers ask for it as if it were to be read, unless
 * they are told that the processor is younger than 2003 or so; one of before takes the instruction for none. */
static inline void prefetch_to_write(const void *line)
{
#ifdef __x86_64__
	__asm__("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

#define KIB 1024ull
#define MIB (1024ull * KIB)
#define GIB (1024ull * MIB)

/*
 * log.c: one line a message, lower case, the cause seen first. Any thread.
 */
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Receives each message that passes the level; `text` is valid during the call. */
typedef void (*log_handler)(enum log_level level, const char *room, const char *text);

extern _Atomic int log_threshold; /* enum log_level; messages above it are not even formatted */

/* Set the handler of the process; NULL is the default, which writes
 * "LEVEL room: text" to stderr. */
void log_set_handler(log_handler handler);

/* A handler for libraries: it keeps the calling thread's last warning or error for log_last() and prints nothing. */
void log_keep(enum log_level level, const char *room, const char *text);

/* The text that log_keep() kept last in this thread, "" if none. */
const char *log_last(void);
void log_clear_last(void);

/* From here to the end the calling thread's messages are kept for log_last() and not handed to the handler: for
 * failures that are no errors, such as a device that is not there. The end returns what was kept. They nest. */
void log_hush_begin(void);
const char *log_hush_end(void);

/* "error", "warn", "info", "debug"; log_level_parse answers -EINVAL for others. */
const char *log_level_name(enum log_level level);
int log_level_parse(const char *name, enum log_level *level);

/* Control characters and bytes that are no UTF-8 become \xNN, so that no text of a peer makes a line of its own or
 * speaks to a terminal; cut where it does not fit. Each message is treated so. Returns buf. */
char *log_printable(const char *text, char *buf, size_t size);
/* Writes what stands between the quotes of a string in JSON, for any bytes: control characters become \u00NN, what is
 * no UTF-8 becomes the replacement character \ufffd; cut where it does not fit, never inside an escape. Returns buf. */
char *log_json(const char *text, char *buf, size_t size);
#define LOG_JSON_MAX 6 /* bytes that one byte may become */

/* From now on each place in the code that logs has LOG_BURST lines in LOG_WINDOW, errors included and debug messages
 * excepted. What is beyond them is counted, and the first line after that says how many there were. Only the handler
 * is spared: log_last() has each message. */
void log_throttle(bool on);
#define LOG_BURST 60
#define LOG_WINDOW (60 * TIME_S)

struct log_site {
	_Atomic uint64_t since; /* begin of its window */
	_Atomic uint32_t count; /* messages in it */
};
enum log_verdict { LOG_PASS, LOG_PASS_LAST, LOG_HOLD };
/* Counts a message. *missed: how many were held back in the window that has ended with it. */
enum log_verdict log_site_judge(struct log_site *site, uint64_t now, uint32_t *missed);

void log_write(struct log_site *site, enum log_level level, const char *room, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#define log_at(level, room, ...)                                                                                       \
	do {                                                                                                           \
		static struct log_site log_site_;                                                                      \
		if ((int)(level) <= atomic_load_explicit(&log_threshold, memory_order_relaxed))                        \
			log_write(&log_site_, level, room, __VA_ARGS__);                                               \
	} while (0)
#define log_error(room, ...) log_at(LOG_LEVEL_ERROR, room, __VA_ARGS__)
#define log_warn(room, ...) log_at(LOG_LEVEL_WARN, room, __VA_ARGS__)
#define log_info(room, ...) log_at(LOG_LEVEL_INFO, room, __VA_ARGS__)
#define log_debug(room, ...) log_at(LOG_LEVEL_DEBUG, room, __VA_ARGS__)
/* return log_fail(-EINVAL, room, ...): log an error, and answer the first argument, which is worked out before. */
#define log_fail(error, room, ...)                                                                                     \
	({                                                                                                             \
		int log_fail_ = (error);                                                                               \
		log_error(room, __VA_ARGS__);                                                                          \
		log_fail_;                                                                                             \
	})

/*
 * time.c: monotonic nanoseconds. Functions that depend on time take `now`.
 */
#define TIME_US 1000ull
#define TIME_MS (1000ull * TIME_US)
#define TIME_S (1000ull * TIME_MS)
#define TIME_NEVER UINT64_MAX

uint64_t time_now(void);
/* The same, but that it goes on while the machine sleeps. */
uint64_t time_boot(void);
/* As of the kernel's last tick, some milliseconds ago at most: a few nanoseconds, also where time_now() takes more. */
uint64_t time_coarse(void);

/* So many nanoseconds after `now`: TIME_NEVER where that is beyond all time. */
static inline uint64_t time_after(uint64_t now, uint64_t ns)
{
	return ns >= TIME_NEVER - now ? TIME_NEVER : now + ns;
}

/* Microseconds, of which UINT64_MAX are for ever. */
static inline uint64_t time_of_us(uint64_t us)
{
	return us >= TIME_NEVER / TIME_US ? TIME_NEVER : us * TIME_US;
}

/* Whether a thread that polls should let others run, as the thread that it waits for may need this processor. Not at
 * once, because a yield costs more than a turn and an answer is usually near. `idle`: turns without work. */
static inline bool time_to_yield(unsigned idle)
{
	return idle >= 128 && idle % 16 == 0;
}

/*
 * groups.c: the least limit of the control groups that this process is in. Reads files: not for the hot path.
 */
struct control_groups {
	const char *membership; /* the file that names them, /proc/self/cgroup */
	const char *controller; /* "memory" of version 1; "": the hierarchy of version 2 */
	const char *mount;      /* where that is */
};

/* read() answers the limit in a group's `file`, UINT64_MAX where there is none; the least of those of all groups
 * above. */
uint64_t control_groups_least(const struct control_groups *groups, const char *file,
			      uint64_t (*read)(const char *path));

/* Bytes of memory that this process may use, in all: the machine's, or what its control groups allow. */
uint64_t ram_usable(void);
uint64_t ram_of_groups(const struct control_groups *two,
		       const struct control_groups *one); /* of version 2 and 1; UINT64_MAX: no limit */

/*
 * memfd.c: memory that another process maps, too, when it is given the descriptor. Its size is sealed: a page that went
 * away under a process that maps it would be a signal there.
 */
/* A descriptor of `size` zero bytes; or -errno, not logged, and errno says it, too. -EFBIG: beyond RLIMIT_FSIZE: the
 * kernel would end a library's program by a signal. */
int memfd_sealed(const char *name, size_t size);
bool memfd_is_sealed(int fd); /* what a peer passed may be any file */

/*
 * Also memfd.c: memory of this process alone that grows by realloc(), twice as much each time, up to `most` bytes.
 */

/* Room for `bytes` behind the first `len`, which stay. Their place; NULL: there is no memory, or it would be beyond
 * `most`, and all is as it was. */
char *buffer_grow(char **at, size_t *room, size_t len, size_t bytes, size_t most);

/*
 * random.c: bytes that cannot be guessed. Only in the first seconds of a machine it may have to wait for them. 0, or
 * -errno, logged: whatever rests on them must not be made then.
 */
int random_fill(void *out, size_t size);

/* Numbers that look random and can be guessed, for choices and contents: xorshift64 (Marsaglia, 2003). *state is not
 * 0. */
static inline uint64_t random_step(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/*
 * quota.c: so many of something in all, and of these so many of one source: an address, a user, a client's name. One
 * thread at a time creates, takes and destroys, as by a lock of the caller's; the rest is for any thread, without one.
 * Only quota_create() allocates.
 */
#define QUOTA_KEY_MAX 32 /* bytes */
#define QUOTA_ALL 1u     /* limits that are met */
#define QUOTA_SOURCE 2u

struct quota;
struct quota_share; /* what one source has */

/* Sources are told apart by `key_size` bytes. 0; -ENOMEM, or as random_fill(). */
int quota_create(uint32_t all, size_t key_size, struct quota **out);
void quota_destroy(struct quota *quota); /* all was given back; NULL is fine */
/* One more of a source that may have `most`; NULL: the source is unknown, and has no limit. 0: *out is to be given
 * back. Else the limits that are met, one or both, and *out is NULL. */
unsigned quota_take(struct quota *quota, const void *source, uint64_t most, struct quota_share **out);
void quota_give(struct quota_share *share); /* NULL is fine */
uint32_t quota_taken(const struct quota *quota);
/* How many sources there are in memory, also some that have nothing. By the thread that takes. */
size_t quota_sources(const struct quota *quota);
/* The share of one source by its setting, of which 0 is half of all. */
static inline uint64_t quota_most(uint64_t setting, uint64_t all)
{
	return setting ? setting : (all + 1) / 2;
}

/*
 * processors.c: how many this process may run on, or as many as its control groups give it time for. Asks the kernel,
 * the first time by files: not for the hot path.
 */
unsigned processors_usable(void); /* at least 1 */
bool processors_limited(void);    /* by a control group, cpu.max or cpu.cfs_quota_us */
/* By the control groups: the file that names the process's, and where the hierarchy is mounted. UINT32_MAX: no
 * limit. */
unsigned processors_of_groups(const char *membership, const char *mount);
unsigned processors_half(void); /* how many threads there are by default; at least 1 */

/*
 * standard.c: what a program does not take over from its parent; at its begin. Standard input, output and error that
 * are closed get a descriptor of which reading or writing fails: else what is opened first takes their numbers, and is
 * read or written in their place. No signal stays blocked, and the exit status of a child is kept for waitpid(). A
 * write beyond RLIMIT_FSIZE fails with EFBIG, and ends nothing.
 */
void standard_begin(void);

/*
 * words.c: Levenshtein's distance (1966) of two short words: beyond 64 characters it is too small.
 */
unsigned words_distance(const char *a, const char *b);
/* A row of a list for people, in lines of less than 80 columns: what it is about, and what is said of that from the
 * column on. */
void words_row(FILE *out, const char *left, unsigned column, const char *text);
/* 1 to `most` letters, digits and "._-". */
bool words_is_name(const char *text, size_t most);
/* The lines of a text that are not empty and no comment, which begins with #. */
struct words_lines {
	const char *next, *end;
	const char *line; /* this one, without blanks at its ends */
	size_t length;
	unsigned number; /* from 1 on */
};
struct words_lines words_lines(const char *text, size_t length);
bool words_lines_next(struct words_lines *lines);

/*
 * units.c: sizes and times as people write them.
 */

/* "4096", "4K", "1.5G" (powers of 1024, optional B or iB) to bytes. -EINVAL: it is not a
 * size; -ERANGE: beyond 2^63-1. *out is untouched then. */
int units_parse_size(const char *text, uint64_t *out);

/* "20us", "1.5s", "250ms", "2m", "1h", "7d", "0" to nanoseconds; other numbers need a unit. */
int units_parse_time(const char *text, uint64_t *out);

/* A whole decimal number in [min, max]: no sign, no blank, nothing after it. */
int units_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* Shortest exact form: 4096 -> "4K", 1000 -> "1000"; 20000 -> "20us". Returns buf. */
char *units_format_size(uint64_t bytes, char buf[static 32]);
char *units_format_time(uint64_t ns, char buf[static 32]);

/* For people, three digits: "1.46 GiB/s" style number part, e.g. 1565873 -> "1.49 MiB". */
char *units_human_size(double bytes, char buf[static 32]);

/*
 * address.c: where to listen or connect, as text and as a socket address. Which schemes there are, the rooms above
 * know: here a scheme is a word.
 */
#define ADDRESS_PORT 7471

struct address {
	char scheme[16]; /* "" where the text names none */
	bool path;       /* host is a path */
	bool port_given; /* else it is the default, ADDRESS_PORT; 0 for a path */
	uint16_t port;   /* host order; 0: chosen by the system */
	char host[256];  /* name, number or "*", or the path of a UNIX socket */
};

/* "host", "host:port", "[v6]:port", and these or a path after a scheme: "tcp://host:port", "unix:///path".
 * Logs what is wrong and answers -EINVAL. */
int address_parse(const char *text, struct address *out);

struct address_socket {
	struct sockaddr_storage sa;
	socklen_t len;
	bool memory; /* connections to it may go by shared memory. Set by fabric_transport_resolve() */
};

/* The socket addresses of host (blocking name lookup), each once and in the resolver's order, or sockaddr_un for a
 * path. "*" is 0.0.0.0 and ::. How many, at most ADDRESS_SOCKETS, or -EHOSTUNREACH when the name has none; logged. */
#define ADDRESS_SOCKETS 8
int address_resolve(const struct address *address, struct address_socket out[static ADDRESS_SOCKETS]);

/* A connected stream socket; or -errno, of a limit that was exceeded -ETIMEDOUT, of a path's -EAGAIN. `limit`: for
 * this, and then for each send and receive; 0: nothing waits. */
int address_connect(const struct address_socket *to, uint64_t limit);

/* 127.0.0.0/8 or ::1; 0.0.0.0 or ::. Or an address of IPv4 such as these in one of IPv6. */
bool address_is_loopback(const struct sockaddr *sa);
bool address_is_unspecified(const struct sockaddr *sa);

/* Where a socket of the daemon is unless configured: NAME in the directory `given`, unless that is NULL or no path;
 * else /run/rdmad/NAME for root, and $XDG_RUNTIME_DIR/SHARED or NAME in address_own_directory() for others. Returns
 * buf. */
#define ADDRESS_SERVICE_SOCKET "rdmad.sock"
char *address_runtime_path(const char *name, const char *shared, const char *given, char *buf, size_t size);

/* A directory of this user's that no other may write to: 0, -ENOENT, or -EPERM. */
int address_check_directory(const char *path);
/* Where this user's sockets are without $XDG_RUNTIME_DIR, so that two programs of a user meet: /tmp/rdmad-UID, or where
 * others have taken that name, the first of /tmp/rdmad-UID.1 to .9 that is the user's own; where there is none, the
 * first that is not there yet. Returns buf, which has room for 64 characters. */
char *address_own_directory(char *buf, size_t size);

/* "10.0.0.1:7471", "[::1]:7471", "unix:/path", "unix:@name" of a socket address. Returns buf. */
char *address_format_socket(const struct sockaddr *sa, char *buf, size_t size);

/*
 * histogram.c: latencies in logarithmic buckets of 1/32 of their value, so that any
 * percentile is exact to about 3 %. One thread a histogram; merge to add up.
 */
#define HISTOGRAM_SUB 32
#define HISTOGRAM_BUCKETS (HISTOGRAM_SUB * 60)

struct histogram {
	uint64_t count, min, max;
	double sum;
	uint32_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_init(struct histogram *h);
void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* Value below which `percent` (0..100) of the samples lie; 0 when empty. */
uint64_t histogram_percentile(const struct histogram *h, double percent);
double histogram_mean(const struct histogram *h);

/*
 * Also histogram.c: counts in few buckets for monitoring systems, cheap to add to and to send. Bucket i counts values
 * up to first << i, the last one all others.
 */
#define BUCKETS 24

struct buckets {
	uint64_t count[BUCKETS];
	uint64_t sum;
};

struct buckets_scale {
	uint64_t first;
	unsigned count; /* at most BUCKETS - 1, and the last beside them */
};

#define BUCKETS_REQUEST ((struct buckets_scale){1000, 21})    /* ns: 1 us to 1.05 s */
#define BUCKETS_SYNC ((struct buckets_scale){125 * 1000, 17}) /* ns: 125 us to 8.2 s */

/* Add the value so many times. Here, as a division by a scale that is known costs a multiplication. */
static inline void buckets_add(struct buckets *buckets, struct buckets_scale scale, uint64_t value, uint64_t times)
{
	uint64_t steps = value ? (value - 1) / scale.first : 0;
	unsigned i = steps ? 64u - (unsigned)__builtin_clzll(steps) : 0;

	must(scale.count < BUCKETS);
	buckets->count[MIN(i, scale.count)] += times;
	buckets->sum += value * times;
}

void buckets_merge(struct buckets *into, const struct buckets *from);

/*
 * FNV-1a (Fowler, Noll, Vo), 64 bits: for small tables where a collision costs little.
 */
static inline uint64_t hash_bytes(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t hash = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * 0x100000001b3ull;
	return hash;
}

/*
 * Intrusive doubly linked list with a sentinel. An unlinked node points at itself or NULL.
 */
struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline bool list_linked(const struct list *n)
{
	return n->next && n->next != n;
}

static inline void list_add_tail(struct list *l, struct list *n)
{
	n->prev = l->prev;
	n->next = l;
	l->prev->next = n;
	l->prev = n;
}

static inline void list_add_head(struct list *l, struct list *n)
{
	n->next = l->next;
	n->prev = l;
	l->next->prev = n;
	l->next = n;
}

/* All of `from` to the front of `to`; `from` is empty then. */
static inline void list_prepend(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to;
	from->prev->next = to->next;
	to->next->prev = from->prev;
	to->next = from->next;
	list_init(from);
}

static inline void list_del(struct list *n)
{
	n->next->prev = n->prev;
	n->prev->next = n->next;
	n->next = n->prev = n;
}

#define list_first(l, type, member) container_of((l)->next, type, member)
/* In the second, the body may take `pos` out of the list. */
#define list_for_each(pos, l) for (struct list *pos = (l)->next; pos != (l); pos = pos->next)
#define list_for_each_safe(pos, tmp, l)                                                                                \
	for ((pos) = (l)->next, (tmp) = (pos)->next; (pos) != (l); (pos) = (tmp), (tmp) = (pos)->next)

/*
 * pending.c: connections that were let in, and have not said yet what they want, or proved that they may. There are so
 * many places. Each connection may stay for a while. Where all places are taken, the one that came first gives way to a
 * new one, after a time of grace: so clients that come together get in, and silent ones keep nobody out. It closes and
 * allocates nothing, and has no clock. One thread at a time.
 */
#define PENDING_TURN 16 /* that are dropped in a turn for their deadline, at most */

enum pending_reason {
	PENDING_GAVE_WAY, /* to a new one */
	PENDING_LATE,     /* its time is over */
	PENDING_CLOSED,   /* by pending_close() */
};

/* In what is pending. Zeros: it has no place. */
struct pending_entry {
	struct list node;
	uint64_t since; /* when it came */
	bool holds;     /* pending_hold() */
};

struct pending_attr {
	uint32_t limit; /* places */
	uint64_t stay;  /* ns that each may stay; TIME_NEVER: for ever */
	uint64_t grace; /* ns for which it does not give way */
	/* Called when an entry has lost its place; it may be freed, others removed. */
	void (*drop)(struct pending_entry *entry, enum pending_reason reason);
};

struct pending {
	struct pending_attr attr;
	struct list entries; /* in the order in which they came */
	uint32_t count;
	bool crowded; /* the last pending_has_place() said no: others may wait outside */
};

void pending_init(struct pending *pending, const struct pending_attr *attr);
/* Is there a place for a new one? If all are taken, the first that may gives way. */
bool pending_has_place(struct pending *pending, uint64_t now);
/* The first that may gives way, though there may be places. False: none may. */
bool pending_make_room(struct pending *pending, uint64_t now);
/* At the end, whether there is a place or not. One that is in begins anew there. */
void pending_add(struct pending *pending, struct pending_entry *entry, uint64_t now);
/* Removes an entry. One without a place is fine. */
void pending_remove(struct pending *pending, struct pending_entry *entry);
/* Holds an entry that has said what it wants: it gives way no more, and may not stay for longer. */
static inline void pending_hold(struct pending_entry *entry)
{
	entry->holds = true;
}
static inline bool pending_has(const struct pending_entry *entry)
{
	return list_linked(&entry->node);
}
struct pending_entry *pending_first(const struct pending *pending); /* NULL: there is none */
/* Drops what has stayed for too long. How many. */
int pending_turn(struct pending *pending, uint64_t now);
/* When that is next, or when there may be a place for those outside; TIME_NEVER. */
uint64_t pending_deadline(const struct pending *pending);
void pending_close(struct pending *pending); /* drops all */

/*
 * Ring of pointers from one producer thread to one consumer thread (Lamport, 1977),
 * free-running indices. Size is a power of two.
 */
#define RING_SIZE 1024

struct ring {
	_Alignas(CACHE_LINE) _Atomic uint32_t head; /* written by the producer */
	_Alignas(CACHE_LINE) _Atomic uint32_t tail; /* written by the consumer */
	_Alignas(CACHE_LINE) void *slot[RING_SIZE];
};

/* False when the ring is full; the item was not taken. */
static inline bool ring_push(struct ring *r, void *item)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (head - atomic_load_explicit(&r->tail, memory_order_acquire) == RING_SIZE)
		return false;
	r->slot[head % RING_SIZE] = item;
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
	return true;
}

/* NULL when the ring is empty. */
static inline void *ring_pop(struct ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	void *item;

	if (tail == atomic_load_explicit(&r->head, memory_order_acquire))
		return NULL;
	item = r->slot[tail % RING_SIZE];
	atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
	return item;
}

#endif
