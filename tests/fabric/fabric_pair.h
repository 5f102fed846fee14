/*
 * fabric_pair.h: two queues and connected endpoints in one process, one thread. A pump
 * pulls completions and events of both sides into logs; tests wait on predicates with
 * a deadline and never for a fixed time, except to see that nothing comes.
 *
 * While it logs, the pump checks what holds for each completion and event: it belongs to an
 * endpoint that lives, brings that side's context, and nothing follows FABRIC_DISCONNECTED.
 */
#ifndef RDMAD_TESTS_FABRIC_PAIR_H
#define RDMAD_TESTS_FABRIC_PAIR_H

#include <check.h>
#include <sched.h>

#include "fabric/fabric.h"

/* As ck_assert_msg, for what is looked at thousands of times: check writes to a file at each of its
 * own assertions. */
#define check_that(condition, ...)                                                                                     \
	do {                                                                                                           \
		if (unlikely(!(condition)))                                                                            \
			ck_abort_msg(__VA_ARGS__);                                                                     \
	} while (0)

/* What the suite runs against, from the command line. */
struct target {
	const char *provider;
	const struct fabric_transport *transport;
	char text[256];             /* its address, with the scheme */
	struct sockaddr_storage sa; /* the same, resolved */
	bool verbs, soft;           /* what is known of these providers alone: devices, sockets and frames */
	bool shared, open_sinks;    /* of its limits */
	bool memory;                /* both ends ask for shared memory */
	int slow;                   /* factor for every time limit: 10 where the machine is emulated */
};
extern struct target target;

/* Of memory that reads land in. */
unsigned sink_rights(void);

/* The nth address to listen on: port 0 where there are ports, another path or name otherwise. False: it is none. */
bool target_address(int nth, struct sockaddr_storage *sa, socklen_t *len);
bool target_has_port(void);
/* Where there are ports. */
void target_set_port(struct sockaddr_storage *sa, uint16_t port);

struct known {
	struct fabric_endpoint *endpoint;
	bool closed; /* its FABRIC_DISCONNECTED or FABRIC_REMOVED was pulled */
};

/* One queue, and what was pulled from it and not yet looked at. */
struct station {
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_completion *done;
	struct fabric_event *event;
	struct known *known;
	int done_count, done_room, event_count, event_room, known_count, known_room;
	uint64_t pulled; /* completions and events ever */
	unsigned idle;   /* pumps since the last of them */
};

void station_open(struct station *st, struct fabric *fabric, const struct fabric_queue_attr *attr);
void station_close(struct station *st); /* destroys endpoints that are left */
void station_pump(struct station *st);
/* Arm, look once more, sleep at most timeout_ms, pull. False when the time ran out. */
bool station_sleep(struct station *st, int timeout_ms);

/* How many of the queue's descriptors are readable, waiting at most timeout_ms for one. */
int station_readable(const struct station *st, int timeout_ms);
#define SLEEP_MS (target.slow * 60000) /* only ends a wait that would be for ever */

/* As the fabric calls of these names; they keep the list of living endpoints. */
int station_connect(struct station *st, const struct sockaddr_storage *sa, socklen_t len,
		    const struct fabric_endpoint_attr *attr, const void *data, size_t data_len,
		    struct fabric_endpoint **out);
int station_take(struct station *st, struct fabric_request *request, const struct fabric_endpoint_attr *attr,
		 struct fabric_endpoint **out);
void station_destroy(struct station *st, struct fabric_endpoint **endpoint);

struct fabric_pair_options {
	struct fabric_config fabric;
	struct fabric_queue_attr queue;
	struct fabric_endpoint_attr client, server;
};
extern const struct fabric_pair_options fabric_pair_defaults; /* 64 sends, 64 own receives, 4 reads each way */
extern const struct fabric_pair_options fabric_pair_shared;   /* the server takes from 64 shared receives */

struct fabric_pair {
	struct fabric *fabric;
	struct fabric_limits limits;
	struct fabric_pair_options options;
	struct station client, server;
	struct fabric_listener *listener; /* on the server's queue */
	struct sockaddr_storage sa;       /* where it listens */
	socklen_t len;
	struct fabric_endpoint *c, *s;
};

void fabric_pair_open(struct fabric_pair *p, const struct fabric_pair_options *options); /* all but the endpoints */
void fabric_pair_make(struct fabric_pair *p, const struct fabric_pair_options *options); /* and c and s, connected */
void fabric_pair_connect(struct fabric_pair *p, struct fabric_endpoint **c, struct fabric_endpoint **s);
void fabric_pair_close(struct fabric_pair *p);
void fabric_pair_pump(struct fabric_pair *p);
void fabric_pair_pump_for(struct fabric_pair *p, unsigned ms); /* to see that nothing comes; times target.slow */

/* Arm and pull until nothing comes and nothing is readable: now one may sleep. */
void fabric_pair_settle(struct fabric_pair *p, struct station *st);

uint64_t deadline(void); /* of one wait */

#define wait_until(p, condition)                                                                                       \
	do {                                                                                                           \
		uint64_t until_ = deadline();                                                                          \
		while (!(condition)) {                                                                                 \
			check_that(time_now() < until_, "waited in vain for: %s", #condition);                         \
			fabric_pair_pump(p);                                                                           \
		}                                                                                                      \
	} while (0)

/* Take the first completion (of endpoint, or of any when NULL) out of the log; waits for it. */
struct fabric_completion done_next_at(int line, struct fabric_pair *p, struct station *st,
				      const struct fabric_endpoint *endpoint);
#define done_next(p, st, endpoint) done_next_at(__LINE__, p, st, endpoint)

/* The same, which has to have this id and status, and this opcode when it is FABRIC_OK. */
struct fabric_completion done_expect_at(int line, struct fabric_pair *p, struct station *st,
					const struct fabric_endpoint *endpoint, uint64_t id, enum fabric_opcode opcode,
					enum fabric_status status);
#define done_expect(p, st, endpoint, id, opcode, status) done_expect_at(__LINE__, p, st, endpoint, id, opcode, status)

/* The next event of endpoint (NULL: of a listener), whatever it is; waits for it. */
struct fabric_event event_next_at(int line, struct fabric_pair *p, struct station *st,
				  const struct fabric_endpoint *endpoint);
#define event_next(p, st, endpoint) event_next_at(__LINE__, p, st, endpoint)

/* The same, which has to be of this type. */
struct fabric_event event_expect_at(int line, struct fabric_pair *p, struct station *st,
				    const struct fabric_endpoint *endpoint, enum fabric_event_type type);
#define event_expect(p, st, endpoint, type) event_expect_at(__LINE__, p, st, endpoint, type)

const char *event_name(enum fabric_event_type type);

/* Registered memory between two guards that must never change. */
struct buffer {
	uint8_t *at;
	size_t len;
	struct fabric_region *region;
};

#define BUFFER_GUARD 4096

void buffer_make(struct buffer *b, struct station *st, size_t len, unsigned access);
void buffer_deregister(struct buffer *b);
void buffer_drop(struct buffer *b); /* checks the guards */
void buffer_fill(struct buffer *b, uint8_t seed);
bool buffer_has(const struct buffer *b, size_t offset, size_t len, uint8_t seed); /* as filled */
void buffer_check_guards(const struct buffer *b);

/* A signaled work request on b[offset, offset + len); without any memory when b is NULL. */
struct fabric_wr wr_local(enum fabric_opcode opcode, uint64_t id, const struct buffer *b, size_t offset, size_t len);
/* The same towards target[target_offset...), memory of the side whose endpoint is `theirs`. */
struct fabric_wr wr_remote(enum fabric_opcode opcode, uint64_t id, const struct buffer *b, size_t offset, size_t len,
			   const struct buffer *to, const struct fabric_endpoint *theirs, size_t to_offset);

/* Post one or a chain, which must succeed; patiently: pump while it answers -EAGAIN. */
void post_at(int line, struct fabric_endpoint *endpoint, const struct fabric_wr *wr);
#define post(endpoint, wr) post_at(__LINE__, endpoint, wr)
void post_patiently(struct fabric_pair *p, struct fabric_endpoint *endpoint, const struct fabric_wr *wr);

/* Post one receive into b[offset, offset + len); endpoint NULL: shared. */
int try_receive(struct station *st, struct fabric_endpoint *endpoint, uint64_t id, const struct buffer *b,
		size_t offset, size_t len);
void receive_at(int line, struct station *st, struct fabric_endpoint *endpoint, uint64_t id, const struct buffer *b,
		size_t offset, size_t len);
#define receive(st, endpoint, id, b, offset, len) receive_at(__LINE__, st, endpoint, id, b, offset, len)

/* A few messages, a write and a read between c and s: that this connection is well. Own
 * or shared receives as the pair has them; leaves no receive posted. */
/* A small message from c wakes the server, which sleeps. */
void fabric_pair_wake(struct fabric_pair *p, struct fabric_endpoint *c, struct fabric_endpoint *s, struct buffer *mine,
		      struct buffer *theirs, uint64_t id);
void fabric_pair_exercise(struct fabric_pair *p, struct fabric_endpoint *c, struct fabric_endpoint *s);

unsigned random_next(unsigned *state); /* the same numbers each time */

/* A test case that is killed when it takes twice these seconds, times target.slow. */
TCase *fabric_pair_tcase(Suite *suite, const char *name, int seconds);

/* The suites, each in its file fabric_NAME.c. */
Suite *connect_suite(void);
Suite *message_suite(void);
Suite *memory_suite(void);
Suite *window_suite(void);
Suite *atomic_suite(void);
Suite *teardown_suite(void);
Suite *wait_suite(void);
Suite *scale_suite(void);
Suite *loss_suite(void);
Suite *hostile_suite(void);
Suite *stall_suite(void);
Suite *fair_suite(void);
Suite *rings_suite(void);
Suite *share_suite(void);
Suite *large_suite(void);
Suite *removal_suite(void);

#endif
