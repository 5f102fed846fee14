/*
 * text.h: what services for clients of other protocols share, whose connections are streams of bytes.
 *
 *   answer.c   answers on their way: bytes, values that leave from where they are, and the log that they wait for
 *   value.c    a long value on its way from the socket to its place in the arena
 *   clock.c    the clocks of clients
 *   visit.c    a stream from its begin to its end, and a visit of it
 *   setting.c  what their settings and passwords have in common
 *   slow.c     commands in the log of slow requests
 *
 * Threads: what belongs to a stream is used by its worker alone.
 */
#ifndef RDMAD_SERVICE_TEXT_H
#define RDMAD_SERVICE_TEXT_H

#include "service/kv/kv.h"
#include "stream/stream.h"

/*
 * answer.c
 */

/* A value that leaves from where it is, among the bytes of the answers. */
struct text_pin {
	size_t at; /* bytes before it */
	struct store_ref ref;
};

/* Those of the stream that is visited; in zeros at first. */
struct text_pins {
	struct text_pin *pin;
	unsigned count, room;
	size_t bytes; /* of all values */
};

/* The value stands behind `at` bytes; its pin is taken over. False: no memory, and it is still the caller's. */
bool text_pins_add(struct text_pins *pins, size_t at, const struct store_ref *ref);
/* Give back those beyond the first `count`, which do not leave. */
void text_pins_cut(struct text_pins *pins, struct store *store, unsigned count);
/* All of it leaves, in its order; no pins are left here. */
void text_write(struct stream *stream, struct store *store, struct text_pins *pins, const char *bytes, size_t len);

#define TEXT_HELDS 8u /* of a stream that are told apart; beyond them the last one grows */

/* Answers that are held: how many of each class, since when. */
struct text_held {
	uint64_t tells, since;
	uint64_t times[SERVICE_COUNTED];
};

/* What a stream's answers wait for. */
struct text_gate {
	struct kv_waiter waiter;
	struct kv_thread *kv;
	struct stream *stream;
	/* For the durations of the part's commands. */
	struct service_part *part;
	uint64_t before[SERVICE_COUNTED];  /* answered before this visit */
	struct text_held held[TEXT_HELDS]; /* `tells` rises */
	unsigned helds;
};

void text_gate_init(struct text_gate *gate, struct service_part *part, struct kv_thread *kv, struct stream *stream);
/* A visit begins, in which commands are answered. */
static inline void text_gate_begin(struct text_gate *gate)
{
	for (unsigned i = 0; i < SERVICE_COUNTED; i++)
		gate->before[i] = gate->part->answered[i] - gate->part->late[i];
}
/* One is answered, and tells of that change. `since`: when it came, before this visit. */
void text_gate_answered_late(struct text_gate *gate, enum service_class class, uint64_t since, uint64_t tells);
/* The same; 0: it came in this visit. One that came in this turn takes as long as any other of it. */
static inline void text_gate_answered(struct text_gate *gate, enum service_class class, uint64_t since, uint64_t tells)
{
	service_part_answered(gate->part, class);
	if (unlikely(since && since != service_part_now(gate->part)))
		text_gate_answered_late(gate, class, since, tells);
}
/* The answers of this visit, which are written behind this, tell of that change, and leave when it is on disk. */
void text_gate_hold(struct text_gate *gate, uint64_t tells);
void text_gate_end(struct text_gate *gate); /* when the stream is closed; of one in zeros, too */

/* From within bytes() or received(): the store has said -EAGAIN. Comes again at once; or in a millisecond, where the
 * log has to get on, or slots are waited for (`held`). */
void text_again(struct stream *stream, const struct kv_shared *kv, bool held);

/*
 * value.c: when the length of a long value is known, its place is reserved, and its bytes are received there. Room is
 * made in parts, as the bytes come: so a client that never sends them drops little of what others have.
 */
struct text_value {
	struct store_ref ref; /* its place; item NULL: there is none, and its bytes are dropped */
	uint64_t len, done;   /* bytes of it that are in place or were asked for */
	uint64_t ready;       /* that there is room for */
	uint64_t busy;        /* since when something is in the way of more; 0: nothing is */
	const void *at;       /* its place, also when it was taken out of `ref`; of a dropped one no address of its */
	size_t key, key_len;  /* of its key, where the owner keeps that */
	int error;            /* why there is no place; not 0 from the beginning: it is not to have one */
	bool coming;          /* its bytes are taken from the stream */
	bool placed;          /* room was asked for */
};

/* The next bytes of it, by stream_receive(); or it comes again by stream_again(). Called at first, by received() while
 * done < len, and by bytes() while `coming`. `most`: longest that may have a place. */
void text_value_go(struct text_value *value, struct stream *stream, const struct kv_shared *kv, const void *key,
		   const struct store_put *put, uint64_t most);
/* Its place goes, if it was not taken out of `ref`. */
void text_value_end(struct text_value *value, struct store *store);

/*
 * clock.c: clients speak of the time since 1970; the store's scale is time_now().
 */
int64_t text_unix_ms(void);
uint64_t text_expires_at(uint64_t now, int64_t unix_ms); /* on the store's scale; at the least now: it has expired */
int64_t text_unix_of(uint64_t expires);                  /* of one that is not TIME_NEVER, in ms */

/*
 * visit.c
 */

/* Open a stream for a client, as struct service's stream(): open->fd is consumed in every case. `client` is its
 * context; NULL: -ENOMEM. */
int text_open(struct service_part *part, struct stream_group *group, struct stream_open *open,
	      const struct stream_ops *ops, void *client, struct stream **out);
/* Whether a visit may carry out its command number `commands`: there is room for its answer behind `answers` bytes and
 * the pins, and time. */
#define TEXT_CLOCK_EACH 16 /* commands between two looks at the clock */
static inline bool text_goes_on(const struct stream *stream, const struct text_pins *pins, size_t answers,
				unsigned commands)
{
	return answers + pins->bytes <= STREAM_OUT_HIGH && (commands % TEXT_CLOCK_EACH || stream_time_left(stream));
}

/* End of a visit, when its answers were written: the commands count, and the stream is closed at its client's wish, or
 * comes again as there is more to do. */
void text_visited(struct stream *stream, unsigned commands, bool closing, bool more);
/* Why a stream was closed, unless that was in peace. */
void text_log_closed(const struct stream *stream, const char *service, int error, const char *reason);

/*
 * setting.c
 */

/* The first of each service's settings: the functions below are handed the latter as `values`. */
struct text_settings {
	struct setting_list listen;
	uint64_t port;
	char *unix_socket;
	uint64_t unix_mode;
	bool clear; /* passwords in clear from other machines */
	/* Of services that have TEXT_RDMA_SETTINGS. */
	struct setting_list rdma;
	uint64_t rdma_window, rdma_memory;
};

/* Rows of struct setting for them. NAME is the service's, WHOSE "Redis's". */
#define TEXT_SETTINGS(NAME, WHOSE, PORT, SOCKET, MANUAL)                                                               \
	{NAME ".listen",                                                                                               \
	 SETTING_LIST,                                                                                                 \
	 offsetof(struct text_settings, listen),                                                                       \
	 NULL,                                                                                                         \
	 .check = setting_check_host,                                                                                  \
	 .sample = "127.0.0.1",                                                                                        \
	 .help = "Addresses for " WHOSE " clients, host[:port], over TCP. Unset, and no unix_socket beside it:\n"      \
		 "the service is not there. See " MANUAL "."},                                                         \
		{NAME ".port",                                                                                         \
		 SETTING_NUMBER,                                                                                       \
		 offsetof(struct text_settings, port),                                                                 \
		 PORT,                                                                                                 \
		 0,                                                                                                    \
		 65535,                                                                                                \
		 .help = "Port of addresses that name none."},                                                         \
		{NAME ".unix_socket",                                                                                  \
		 SETTING_STRING,                                                                                       \
		 offsetof(struct text_settings, unix_socket),                                                          \
		 NULL,                                                                                                 \
		 .check = setting_check_path,                                                                          \
		 .sample = SOCKET,                                                                                     \
		 .help = "UNIX socket for " WHOSE " clients of this machine."},                                        \
		{NAME ".unix_mode",                                                                                    \
		 SETTING_MODE,                                                                                         \
		 offsetof(struct text_settings, unix_mode),                                                            \
		 "0666",                                                                                               \
		 0,                                                                                                    \
		 0777,                                                                                                 \
		 .help = "Who may connect to it."},                                                                    \
	{                                                                                                              \
		NAME ".clear", SETTING_BOOL, offsetof(struct text_settings, clear), "false",                           \
			.help = "Take passwords from other machines, too, though the network may hear them: the "      \
				"protocol has\n"                                                                       \
				"no encryption."                                                                       \
	}

/* For a service whose clients come by RDMA, too. */
#define TEXT_RDMA_SETTINGS(NAME, MANUAL)                                                                               \
	{NAME ".rdma",                                                                                                 \
	 SETTING_LIST,                                                                                                 \
	 offsetof(struct text_settings, rdma),                                                                         \
	 NULL,                                                                                                         \
	 .check = text_check_rdma,                                                                                     \
	 .sample = "10.0.0.1",                                                                                         \
	 .help = "Addresses of RDMA devices for clients of Valkey's protocol over RDMA, host[:port]; they may\n"       \
		 "be those of listen. See " MANUAL "."},                                                               \
		{NAME ".rdma_window",                                                                                  \
		 SETTING_SIZE,                                                                                         \
		 offsetof(struct text_settings, rdma_window),                                                          \
		 "256K",                                                                                               \
		 64 * KIB,                                                                                             \
		 16 * MIB,                                                                                             \
		 .help = "Memory that such a client writes into; it has two of these."},                               \
	{                                                                                                              \
		NAME ".rdma_memory", SETTING_SIZE, offsetof(struct text_settings, rdma_memory), "64M", MIB, 64 * GIB,  \
			.help = "Registered memory of all such clients; beyond it others are refused."                 \
	}

bool text_check_rdma(const char *text, char *why, size_t size); /* an address of such clients */
/* Whether there is such a service: 0, SERVICE_NOT_OFFERED, or -EINVAL, logged: there is no kv. */
int text_offered(const struct text_settings *s, bool kv, const char *name);
int text_check(const void *values, uint64_t services, const char *name); /* for struct service's */
unsigned text_descriptors(const void *values);                           /* struct service's */
void text_door(const void *values, struct service_door *out);            /* the same */
unsigned text_tcp_port(const struct text_settings *s);                   /* of the first address; 0: there is none */
/* Whether a password may come by this socket: no other machine can hear it, or that is allowed. */
bool text_takes_password(const struct text_settings *s, int fd);

/*
 * slow.c
 */
/* Whether the command that comes is timed; also one that comes again, and was begun while commands were timed. */
static inline bool text_slow_is_on(const struct service_part *part, uint64_t begun)
{
	return unlikely(part->slow || begun);
}

/* When a timed command was begun, which may have come before. */
static inline void text_slow_begin(uint64_t *begun)
{
	if (!*begun)
		*begun = time_now();
}
/* It was answered. Fills in the client and how long it took, and logs it if that was too long; tells of its key where
 * hot ones are looked for. */
void text_slow_end(struct service_part *part, const struct stream *stream, uint64_t *begun,
		   struct service_slow_request *request);

#endif
