/*
 * conn: one peer. Handshake, credits, messages of records, teardown; the same code for the
 * daemon and for librdmad. Uses wire, memory and fabric; owns no loop and no clock: a
 * descriptor set and a next deadline come out, `now` goes in.
 *
 * A group is what one thread has on one fabric queue: buffers and connections. All functions
 * of a group and of its connections are called by that thread; another may take over between two turns.
 *
 * Sending: reserve room for a record in the message being built, fill it, commit. Nothing is
 * copied and nothing waits to be filled: the end of conn_group_progress (or conn_flush) posts
 * what there is, so a message carries as many records as were ready. A message takes a
 * credit, one of the peer's posted receives, when it is begun. A message without records, which
 * only returns credits, takes none, so that two peers can never starve each other.
 *
 * Nothing is freed in a callback: conn_close only marks, the end of the group's turn buries what
 * has nothing in flight, and calls closed() exactly once.
 */
#ifndef RDMAD_CONN_H
#define RDMAD_CONN_H

#include "memory/memory.h"
#include "wire/wire.h"

struct conn;
struct conn_group;

/* What a service (or the client of one) does with a connection. */
#define CONN_AHEAD 8

struct conn_ops {
	/* Sends may be reserved from here on. */
	void (*established)(struct conn *conn);
	/* One record came; its length was checked against the message. 0: done with it. -EAGAIN: not now, and the same
	 * record comes again: there was no room for the answer (conn_reserve failed), it waits for something
	 * (conn_wait_writable), or it was long and only a step of it is done (conn_yield). Records behind it wait. Other
	 * errors: the peer broke the protocol; log nothing, the connection is closed with that error. */
	int (*record)(struct conn *conn, const struct wire_record *record, const void *body);
	/* These records come next, 2 to CONN_AHEAD of one message, though perhaps not all of them: time to fetch what they need from
	 * memory. Each body is behind its record, and of each the length was checked. NULL: no use for it. */
	void (*ahead)(struct conn *conn, const struct wire_record *const record[], unsigned count);
	/* The peer wrote with this immediate: what it wrote until then is in place, and its records from before were
	 * taken. NULL: a peer that does so breaks the protocol. */
	void (*immediate)(struct conn *conn, uint32_t imm);
	/* conn_reserve had failed outside of record() and may succeed now. */
	void (*writable)(struct conn *conn);
	/* The peer is to end. It goes on for a while, and is best left before; `last`: it takes nothing any more, and what it
	 * has not answered it did not carry out. NULL: nobody wants to know. */
	void (*leave)(struct conn *conn, bool last);
	/* The last call: nothing of this connection is in flight and it is freed on return. error: 0 when either side
	 * asked to disconnect in peace, else negative errno; reason is never NULL. */
	void (*closed)(struct conn *conn, int error, const char *reason);
};

struct conn_group_attr {
	uint32_t message_size;      /* of the shared buffers; a connection that negotiates more has its own */
	uint32_t message_max;       /* largest to grant */
	uint16_t credits;           /* most to grant to a peer */
	uint32_t receives;          /* most shared receives; fewer are posted while there are few connections. Where a
	                             * device shares none, connections have receives of their own */
	uint32_t max_connections;   /* to accept; cut to what the device's completion queues hold */
	uint32_t first_connections; /* that the queues begin with room for, and grow; 0: for all of them */
	uint32_t completions;       /* that they have room for at least, as far as the device lets them */
	uint32_t transfers;         /* reads and writes in flight on one connection; 0: none */
	uint8_t reads_in;           /* of them, reads that the peer may have in flight here */
	uint64_t handshake_timeout; /* ns, from connect or accept to established */
	uint64_t keepalive;         /* ns without traffic before the peer's host is probed; 0: never */
	uint64_t stall_timeout;     /* ns that a peer may leave answers untaken; 0: for ever */
	bool memory;                /* of what is accepted: as fabric_endpoint_attr's */
	bool asks;                 /* after keepalive ask the peer's program, which never computes, not only its host */
	struct memory_budget *own; /* of buffers that connections have of their own; NULL: no limit */
	uint64_t parked;           /* bytes of requests that wait, of all connections; 0: no limit */
	uint64_t first_request;    /* ns after which a connection that asked for nothing may give way; 0: never */
	uint64_t turn;             /* ns of work after which a turn leaves the rest to the next; 0: it has no end */
	uint64_t (*clock)(void);   /* the time in the midst of a turn; where `turn` is not 0 */
};

/* What one connection has of its own; zeros: as its group. */
struct conn_attr {
	/* Of the group's fabric: the peer reaches this domain's regions and no others; the connection has buffers and
	 * receives of its own in it. To be destroyed in closed() or later. */
	struct fabric_domain *domain;
	uint32_t transfers; /* in place of the group's */
	uint8_t reads_in;   /* in place of the group's */
	/* Counts connections of a kind, this one already: counted down by one when it ends. NULL: nobody counts. Not if
	 * it came to nothing, as conn_accept() said. */
	_Atomic uint32_t *counted;
	/* Of a connect: as fabric_endpoint_attr's. */
	const struct sockaddr *from;
	bool memory;
};

struct conn_group_stats {
	uint64_t connections; /* now */
	uint64_t accepted, closed, violations, refused;
	uint64_t yields;     /* visits to a connection that ended before its work did */
	uint64_t stalled;    /* cut off: took no answers, or a transfer did not get on */
	uint64_t silent;     /* cut off: the peer, or its host, did not answer */
	uint64_t gave_way;   /* closed for another: had asked for nothing */
	uint64_t overparked; /* cut off: had most of the waiting requests when there were too many */
	uint64_t messages_in, messages_out, records_in, records_out, bytes_in, bytes_out;
	uint64_t buffers, buffers_in_use, buffer_bytes; /* shared by the connections */
	uint64_t own_buffer_bytes;                      /* of connections that have their own */
	uint64_t parked_bytes;
};

/*
 * group.c
 */
int conn_group_create(struct fabric_domain *domain, const struct conn_group_attr *attr, struct conn_group **out);
/* Destroys what connections remain, calling closed() of each. */
void conn_group_destroy(struct conn_group *group);

struct fabric_domain *conn_group_domain(const struct conn_group *group);
struct fabric_queue *conn_group_queue(const struct conn_group *group);
const struct conn_group_attr *conn_group_attr(const struct conn_group *group);

/* One turn: completions, events, answers, timers, burials. Returns how many completions and events
 * there were, and is not 0 either when work is left for the next turn, or when this process moved bytes for a peer
 * (fabric_moving()): 0 says that it may be time to sleep. Not from inside a callback. */
int conn_group_progress(struct conn_group *group, uint64_t now);

/* When conn_group_progress must be called though nothing comes; TIME_NEVER: no need. */
uint64_t conn_group_deadline(const struct conn_group *group);

/* When the oldest connection that may give way (conn_group_attr.first_request) was opened; TIME_NEVER: there is none.
 * Cheap. And close it, so that another has its place. False: there is none. */
uint64_t conn_group_oldest(struct conn_group *group);
bool conn_group_make_room(struct conn_group *group, uint64_t now);

/* How many connections there are; cheap, unlike the statistics. */
uint64_t conn_group_connections(const struct conn_group *group);
void conn_group_get_stats(const struct conn_group *group, struct conn_group_stats *out);
/* The same in steps, for a group of many: the next `most` connections, oldest first, each handed to fn unless that is NULL.
 * True: these were the last, and *out has all, in which each connection counts once, also one that ended meanwhile. One walk
 * at a time. */
bool conn_group_step_stats(struct conn_group *group, unsigned most, void (*fn)(void *arg, struct conn *conn), void *arg,
			   struct conn_group_stats *out);

/* Calls fn for each connection, oldest first. */
void conn_group_each(struct conn_group *group, void (*fn)(void *arg, struct conn *conn), void *arg);

/*
 * conn.c
 */

/* Begin to connect; the outcome is ops->established or ops->closed. request's credits and
 * message_size are cut to the group's (0: what its shared buffers hold), its version and nonce are filled in. `attr` may be NULL.
 * -EUSERS: the completion queue has no room for what the connection may have outstanding. */
int conn_connect(struct conn_group *group, const struct sockaddr *sa, socklen_t len, const struct wire_request *request,
		 const struct conn_attr *attr, const struct conn_ops *ops, void *context, uint64_t now,
		 struct conn **out);

/* Refuse a request, telling the peer why. Any thread. */
void conn_refuse(struct fabric_request *fabric_request, enum wire_reason reason, uint64_t detail);

/* Accept a request that wire_request_decode() took. `grant` names eager_max and value_max, and message_size where messages are not
 * to be longer than that, whatever was asked for; the rest is filled in. `attr` may be NULL. Consumes fabric_request in every case;
 * the peer of a failure is refused with the reason.
 * -EUSERS: too many connections, or no room in the completion queue for what this one may have outstanding;
 * -EMSGSIZE; -ENOMEM ... */
int conn_accept(struct conn_group *group, struct fabric_request *fabric_request, const struct wire_request *request,
		const struct wire_accept *grant, const struct conn_attr *attr, const struct conn_ops *ops,
		void *context, uint64_t now, struct conn **out);

/* Mark for closing, with an error (0: in peace) and a reason for closed(). The first
 * close of a connection counts, later ones are ignored. What was committed but not posted is lost. */
void conn_close(struct conn *conn, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* This side is to end, or takes no new connections: tell the peer, which may finish and leave by itself. Of one that is still
 * there `patience` ns later nothing is taken any more once all is answered; it is told so, and the connection closed. Called
 * again and again; `quiet`: the service owes no answer. */
void conn_leave(struct conn *conn, uint64_t patience, bool quiet);

/* Each record asks for it: no call. It stands at the beginning. */
static inline void *conn_context(const struct conn *conn)
{
	return *(void *const *)(const void *)conn;
}
/* Another owner takes over, between two turns or from established(). */
void conn_set_owner(struct conn *conn, const struct conn_ops *ops, void *context);
struct fabric_endpoint *conn_endpoint(const struct conn *conn);
/* By what its bytes go; of the accepting side that may change until the first record has come. */
const struct fabric_transport *conn_transport(const struct conn *conn);
const struct wire_accept *conn_granted(const struct conn *conn);
const struct wire_request *conn_request(const struct conn *conn);
bool conn_established(const struct conn *conn);
/* In closed(): the reason by which the server refused, WIRE_REASON_NONE if it did not. closed() has the errno that
 * belongs to it and its text. WIRE_REASONS: none that is known here; what refused may not even be rdmad. */
enum wire_reason conn_refusal(const struct conn *conn);

struct conn_info {
	uint64_t id; /* unique in the process */
	const char *transport, *service, *state;
	char peer[128];
	uint64_t messages_in, messages_out, records_in, records_out, bytes_in, bytes_out;
	uint64_t opened; /* time_now() scale */
};
void conn_get_info(const struct conn *conn, struct conn_info *out);

/*
 * message.c
 */

/* Room for a record of at least `body` bytes, *room is what there really is (may be NULL). NULL: no credit, no buffer, or not
 * established; retry from writable(). The record has length, flags and status 0. */
struct wire_record *conn_reserve(struct conn *conn, uint32_t body, uint32_t *room);

/* As conn_reserve(), for the answer to the request of that operation and id. */
struct wire_record *conn_reserve_reply(struct conn *conn, unsigned op, uint32_t id, uint32_t body, uint32_t *room);

/* Whether conn_reserve() would find room for a body of so many bytes. Who asks first, and goes without, does not have the peer
 * taken for one that is stalled: for what it need not take. */
bool conn_has_room(const struct conn *conn, uint32_t body);

/* The record that was reserved last is complete with a body of `length` bytes. */
void conn_commit(struct conn *conn, struct wire_record *record, uint32_t length);

/* Both at once, for what is said seldom: a record with this head, of which the length is not looked at, and a body of two pieces, which
 * are copied and may be empty. False: as conn_reserve(). */
bool conn_say(struct conn *conn, const struct wire_record *head, const void *body, size_t length, const void *rest,
	      size_t rest_length);

/* Messages with records are counted from 1 on. That of the record that was reserved last; and the first that was not posted,
 * which in closed() will never be. */
uint64_t conn_message_begun(const struct conn *conn);
uint64_t conn_message_unposted(const struct conn *conn);

/* Changes when a record came, or bytes of reads and writes moved, where the fabric can tell that. */
uint64_t conn_moved(const struct conn *conn);

/* Have writable() called, and the record that record() refused with -EAGAIN come again, in a later turn. */
void conn_wait_writable(struct conn *conn);

/*
 * The work of a turn is bounded, so that no peer makes the others wait: after conn_group_attr.turn the rest of a
 * message is parked, and connections take turns. Where more has come than one turn takes, what comes of a connection that
 * has had its visit waits behind the others, too: who asks for little is not behind all that others have asked for. The
 * clock is looked at now and then, as records are short. A record that is longer than some microseconds says so, and one
 * that is longer than some hundred goes in steps:
 *
 *     do
 *             done = one_step(agent);
 *     while (!done && conn_time_left(conn));
 *     if (!done) {
 *             conn_yield(conn);
 *             return -EAGAIN;
 *     }
 *
 * What the steps have brought about is kept by the service: the record and its body are the same when it comes again, and
 * lie elsewhere. The connection waits for nothing but its turn: it is not taken for one that is stalled, and
 * conn_group_progress answers that there is more to do, so that nobody sleeps meanwhile.
 */

/* In record(): the record took as long as so many short ones, of about a microsecond. */
void conn_charge(struct conn *conn, unsigned records);

/* In record(), now and then: whether it may go on. Asks the clock. */
bool conn_time_left(struct conn *conn);

/* In record(), which then answers -EAGAIN: a step was done, and more remains. */
void conn_yield(struct conn *conn);

/* Post what was committed now rather than at the end of the turn. */
void conn_flush(struct conn *conn);

/* Nothing committed waits to be posted, nothing posted is in flight, and no record or writable() is to come again. */
bool conn_idle(const struct conn *conn);

/*
 * transfer.c: reads and writes of the peer's memory.
 */

/* Embedded in what its user knows of the transfer; lives until done(), which is called once: from a later turn
 * of the group, or when the connection is buried (FABRIC_FLUSHED). After it nothing touches the memory. */
struct conn_transfer {
	struct list node;
	struct conn *conn;
	uint32_t count;             /* reads and writes that it stands for */
	uint64_t bytes;             /* of all of them */
	struct conn_transfer *next; /* of pushes that wait for their message */
	struct fabric_sge sge;      /* of a push */
	bool pushed;                /* by either side */
	void (*done)(struct conn_transfer *transfer, enum fabric_status status);
};

/* Whether so many more can be posted now. */
bool conn_transfer_room(const struct conn *conn, unsigned count);

/* Post it: everything committed afterwards reaches the peer after a write's bytes. -EAGAIN: too many are in
 * flight, the record comes again (from record()) or writable() is called. */
int conn_read(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *to, uint64_t remote_addr,
	      uint32_t rkey);
int conn_write(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from, uint64_t remote_addr,
	       uint32_t rkey);
/* The same, and a record is committed and flushed next: the two go by one system call where a processor sends them. */
int conn_write_more(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from,
		    uint64_t remote_addr, uint32_t rkey);

/* Push it behind the message that is being built, for a record that is reserved and not committed, and bears WIRE_PUSHED from
 * here on. There was conn_push_room(). done(): the memory may be used again, whether or not the peer took the value. */
bool conn_push_room(const struct conn *conn, size_t len);
void conn_push(struct conn *conn, struct conn_transfer *transfer, struct wire_record *record,
	       const struct fabric_sge *from);

/* In record(), of one that bears WIRE_PUSHED: where the value goes. Not asked: it is dropped; so it is after
 * -EAGAIN, unless the record waits for its turn only. */
int conn_pull(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *to);
/* conn_wait_writable() of a request that waits for a value that is pulled: the value comes before what is pushed behind the
 * request, which may wait, too. */
void conn_wait_pulled(struct conn *conn);

/* Write and have the peer's immediate() called with `imm`. Takes one of the credits, as a message does (-EAGAIN also
 * without one), and posts first what was committed before, so not between reserve and commit.
 * -EOPNOTSUPP: see fabric_limits.write_imm; nothing was posted. */
int conn_write_imm(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *from,
		   uint64_t remote_addr, uint32_t rkey, uint32_t imm);

/* One read, write or atomic operation of a chain. Writes up to fabric_limits.inline_size need no region. */
struct conn_part {
	enum fabric_opcode
		opcode; /* FABRIC_READ, FABRIC_WRITE, FABRIC_WRITE_IMM, FABRIC_FETCH_ADD, FABRIC_COMPARE_SWAP */
	uint8_t sge_count;
	struct fabric_sge sge[FABRIC_MAX_SGE];
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;           /* of FABRIC_WRITE_IMM: as conn_write_imm() */
	uint64_t operand, swap; /* of atomics: as in fabric_wr */
};

#define CONN_CHAIN_MAX 32

/* Post them in order by one doorbell. Writes take effect in order, reads see the writes before them; a write may overtake a
 * read before it. done() is called once, when all have completed; if one failed, with its status when it was the
 * last, else with FABRIC_FLUSHED. Each counts as a transfer. -EAGAIN: nothing was posted. -EINVAL: none,
 * more than CONN_CHAIN_MAX, or more than the connection's transfers. -EOPNOTSUPP: see fabric_limits.write_imm and
 * atomics; nothing was posted, and the connection goes on. */
int conn_transfer_chain(struct conn *conn, struct conn_transfer *transfer, const struct conn_part *parts,
			unsigned count);

#endif
