/*
 * conn: one peer. Handshake, credits, messages of records, teardown; the same code for the
 * daemon and for librdmad. Uses wire, memory and fabric; owns no loop and no clock: a
 * descriptor set and a next deadline come out, `now` goes in.
 *
 * A group is what one thread has on one fabric queue: buffers and connections. All functions
 * of a group and of its connections are called by that thread; another may take over between two turns.
 *
 * Sending: reserve room for a record in the message being built, fill it, commit. Nothing is copied, and no message
 * waits until it is full: the end of conn_group_progress (or conn_flush) posts what there is, so a message carries as
 * many records as were ready. When a message is begun, it takes a credit: one of the peer's posted receives. A message
 * without records only returns credits and takes none, so that two peers can never starve each other.
 *
 * Nothing is freed in a callback: conn_close only marks a connection. When nothing of it is in flight any more, the end
 * of a turn of the group calls its closed(), exactly once, and frees it.
 */
#ifndef RDMAD_CONN_H
#define RDMAD_CONN_H

#include "auth/auth.h"
#include "memory/memory.h"
#include "wire/wire.h"

struct conn;
struct conn_group;
struct conn_munge;

#define CONN_AHEAD 8

/* Callbacks of a service, or of the client of one, for a connection. */
struct conn_ops {
	/* Sends may be reserved from here on. */
	void (*established)(struct conn *conn);
	/* One record came; its length was checked against the message. 0: done with it. -EAGAIN: not now, and the same
	 * record comes again: there was no room for the answer (conn_reserve failed), it waits for something
	 * (conn_wait_writable), or it was long and only a step of it is done (conn_yield). Records behind it wait.
	 * Other errors: the peer broke the protocol; log nothing, the connection is closed with that error. */
	int (*record)(struct conn *conn, const struct wire_record *record, const void *body);
	/* These 2 to CONN_AHEAD records of one message come next, though perhaps not all of them: now is the time to
	 * prefetch what they need from memory. Each body is behind its record, and all lengths were checked. NULL: no
	 * use for it. */
	void (*ahead)(struct conn *conn, const struct wire_record *const record[], unsigned count);
	/* The peer wrote with this immediate. What it wrote before is in place, and its records from before have been
	 * handed to record(). NULL: a peer that does so breaks the protocol. */
	void (*immediate)(struct conn *conn, uint32_t imm);
	/* conn_reserve had failed outside of record() and may succeed now. */
	void (*writable)(struct conn *conn);
	/* The peer is going to end. It still answers for a while; best disconnect before it ends. `last`: it takes
	 * nothing any more, and has not carried out what it has not answered. NULL: not wanted. */
	void (*leave)(struct conn *conn, bool last);
	/* The last call: nothing of this connection is in flight and it is freed on return. error: 0 when either side
	 * asked to disconnect in peace, else negative errno; reason is never NULL. */
	void (*closed)(struct conn *conn, int error, const char *reason);
};

enum conn_encrypt {
	CONN_CLEAR,   /* nothing is encrypted */
	CONN_OFFER,   /* where both ends can, and have a key */
	CONN_REQUIRE, /* or there is no connection by a network whose bytes could be */
	CONN_DEMAND,  /* of a connect as OFFER; of an accept only where the client requires it */
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
	enum conn_encrypt encrypt;  /* of its own connects, and of what it accepts */
	uint64_t stall_timeout;     /* ns that a peer may leave answers untaken; 0: for ever */
	bool memory;                /* of what is accepted: as fabric_endpoint_attr's */
	bool asks; /* after keepalive ask the peer's program, which never computes, not only its host */
	bool away; /* it may compute for long, and counts as gone only when its host does not answer either */
	struct memory_budget *own; /* of buffers that connections have of their own; NULL: no limit */
	uint64_t parked;           /* bytes of requests that wait, of all connections; 0: no limit */
	uint64_t first_request;    /* ns after which a connection that asked for nothing may give way; 0: never */
	uint64_t turn;             /* ns of work after which a turn leaves the rest to the next; 0: it has no end */
	uint64_t (*clock)(void);   /* the time in the midst of a turn; where `turn` is not 0 */
	/* Asks munged about clients that are accepted with auth_munge for a key; NULL: there are none. When it has an
	 * answer, it has the group turned, by wake(wake_arg), from a thread of its own. */
	struct conn_munge *munge;
	void (*wake)(void *arg);
	void *wake_arg;
	uid_t server_user; /* of connects with auth_munge: that a server may be of, beside root and this process's */
};

/* Attributes of one connection; zeros: as its group. */
struct conn_attr {
	/* A domain of the group's fabric: the peer reaches this domain's regions and no others; the connection has
	 * buffers and receives of its own in it. To be destroyed in closed() or later. */
	struct fabric_domain *domain;
	uint32_t transfers; /* in place of the group's */
	uint8_t reads_in;   /* in place of the group's */
	/* Given back when it ends, but not if it came to nothing, as conn_accept() said. May be NULL. */
	struct quota_share *share;
	bool admitted; /* from the first: conn_admit() */
	/* The key that both must prove. The accepting end takes one that no client has where the client's number is
	 * unknown, so that the client learns nothing by that. It is copied. NULL: nothing is proved. */
	const struct auth_key *key;
	/* Rights of an accepted client, taken over with its reference also where the accept fails. NULL: all rights. */
	struct auth_admission *admission;
	/* For a connect: as fabric_endpoint_attr's. */
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
	uint64_t unproved;   /* cut off: did not prove that it has its key, or which user it is */
	uint64_t revoked;    /* cut off: its key holds no more */
	uint64_t encrypted;  /* of the accepted */
	uint64_t paced;      /* messages that found their client over its limit of bytes or requests a second */
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

/* One turn: completions, events, answers, timers, connections that end. Returns how many completions and events there
 * were; also not 0 if work is left for the next turn, or if this process moved bytes for a peer (fabric_moving()). So 0
 * says that it may be time to sleep. Not from inside a callback. */
int conn_group_progress(struct conn_group *group, uint64_t now);

/* When conn_group_progress must be called even if nothing comes; TIME_NEVER: no need. */
uint64_t conn_group_deadline(const struct conn_group *group);

/* When the oldest connection that may give way (conn_group_attr.first_request) was opened; TIME_NEVER: there is none.
 * Cheap. The second call closes it, so that another can have its place. False: there is none. */
uint64_t conn_group_oldest(struct conn_group *group);
bool conn_group_make_room(struct conn_group *group, uint64_t now);

/* How many connections there are; cheap, unlike the statistics. */
uint64_t conn_group_connections(const struct conn_group *group);
void conn_group_get_stats(const struct conn_group *group, struct conn_group_stats *out);
/* The same in steps, for a group with many connections. Each call takes the next `most` of them, oldest first, and
 * hands each to fn, unless that is NULL. True: these were the last, and *out has the sum, in which each connection
 * counts once, even if it ended meanwhile. One walk at a time. */
bool conn_group_step_stats(struct conn_group *group, unsigned most, void (*fn)(void *arg, struct conn *conn), void *arg,
			   struct conn_group_stats *out);

/* Calls fn for each connection, oldest first. */
void conn_group_each(struct conn_group *group, void (*fn)(void *arg, struct conn *conn), void *arg);

/*
 * munge.c: a thread asks munged about clients that have shown a credential, for all groups of a process, as munged may
 * take its time. It starts with the first of them. Between two turns of its groups, and before these are destroyed, it
 * is stopped: then nothing more comes of what it was asked.
 */
int conn_munge_create(struct conn_munge **out);
void conn_munge_stop(struct conn_munge *munge);
void conn_munge_destroy(struct conn_munge *munge); /* stopped; after its groups. NULL is passed over */

/*
 * conn.c
 */

/* Begin to connect; the outcome is ops->established or ops->closed. request's credits and message_size are cut to the
 * group's (0: what its shared buffers hold), its version and nonce are filled in. `attr` may be NULL. -EUSERS: the
 * completion queue has no room for what the connection may have outstanding. */
int conn_connect(struct conn_group *group, const struct sockaddr *sa, socklen_t len, const struct wire_request *request,
		 const struct conn_attr *attr, const struct conn_ops *ops, void *context, uint64_t now,
		 struct conn **out);

/* Refuse a request, telling the peer why. Any thread. */
void conn_refuse(struct fabric_request *fabric_request, enum wire_reason reason, uint64_t detail);

/* Accept a request that wire_request_decode() took. `grant` names eager_max and value_max, and message_size where
 * messages are not to be longer than that, whatever was asked for; the rest is filled in. `attr` may be NULL. Consumes
 * fabric_request in every case; the peer of a failure is refused with the reason. -EUSERS: too many connections, or no
 * room in the completion queue for what this one may have outstanding; -EMSGSIZE; -ENOMEM ... */
int conn_accept(struct conn_group *group, struct fabric_request *fabric_request, const struct wire_request *request,
		const struct wire_accept *grant, const struct conn_attr *attr, const struct conn_ops *ops,
		void *context, uint64_t now, struct conn **out);

/* Mark for closing, with an error (0: in peace) and a reason for closed(). The first
 * close of a connection counts, later ones are ignored. What was committed but not posted is lost. */
void conn_close(struct conn *conn, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* This side is going to end, or takes no new connections: tell the peer, which may finish and disconnect by itself. If
 * it is still there `timeout` ns later, then, as soon as everything is answered, nothing of it is taken any more; it
 * is told so, and the connection closed. To be called again and again; `quiet`: the service owes no answer. */
void conn_leave(struct conn *conn, uint64_t timeout, bool quiet);

/* The context given to conn_connect() or conn_accept(). Inline, as every record needs it: it is the first member. */
static inline void *conn_context(const struct conn *conn)
{
	return *(void *const *)(const void *)conn;
}
/* The peer is accepted: from established() on it may reach what was registered for it and what it was told the keys of.
 * Until this is called it reaches no memory, whatever it knows (fabric_admit()). Idempotent. */
void conn_admit(struct conn *conn);
/* The peer's rights. Valid until the next conn_revise(). */
const struct auth_client *conn_client(const struct conn *conn);
/* Looks at the peer's key and rights again, by another table. False: it has no key any more, and is closed. */
bool conn_revise(struct conn *conn, struct auth_table *table);
/* Closes a connection that has lost its rights, and counts it. */
void conn_revoke(struct conn *conn, const char *why);
/* Both ends have proved a key: what one of them seals, only the other can read, in the same order. */
bool conn_seals(const struct conn *conn);
/* Writes AUTH_SEALED(length) bytes. */
void conn_seal(struct conn *conn, const void *text, size_t length, void *out);
/* 0, or -EBADMSG: it is not the next that the other end has sealed. */
int conn_unseal(struct conn *conn, const void *sealed, size_t length, void *out);
/* Another owner takes over, between two turns or from established(). */
void conn_set_owner(struct conn *conn, const struct conn_ops *ops, void *context);
struct fabric_endpoint *conn_endpoint(const struct conn *conn);
/* The transport that its bytes go by. On the accepting side it may change until the first record has come. */
const struct fabric_transport *conn_transport(const struct conn *conn);
const struct wire_accept *conn_granted(const struct conn *conn);
const struct wire_request *conn_request(const struct conn *conn);
bool conn_established(const struct conn *conn);
/* As fabric_hung_up(), asked once for each value of `tick`, which is time_coarse(): so a program that sends without end
 * pays nothing for it. */
bool conn_hung_up(struct conn *conn, uint64_t tick);
/* In closed(): why the server refused the connection, WIRE_REASON_NONE if it did not. The parameters of closed() are
 * the errno and the text that belong to it. WIRE_REASONS: a reason that is not known here; what refused may not even be
 * an rdmad. */
enum wire_reason conn_refusal(const struct conn *conn);

/* For what is listed beside connections. Any thread. */
uint64_t conn_next_id(void);

struct conn_info {
	uint64_t id; /* unique in the process */
	const char *transport, *service, *state;
	char peer[128];
	char key[AUTH_NAME_MAX + 1]; /* as auth_admission_name() */
	uint64_t messages_in, messages_out, records_in, records_out, bytes_in, bytes_out;
	uint64_t in_flight;    /* reads and writes of the peer's memory */
	uint64_t parked_bytes; /* of requests that wait */
	uint64_t opened;       /* time_now() scale */
};
void conn_get_info(const struct conn *conn, struct conn_info *out);

/*
 * message.c
 */

/* Room for a record of at least `body` bytes, *room is what there really is (may be NULL). NULL: no credit, no buffer,
 * or not established; retry from writable(). The record has length, flags and status 0. */
struct wire_record *conn_reserve(struct conn *conn, uint32_t body, uint32_t *room);

/* As conn_reserve(), for the answer to the request of that operation and id. */
struct wire_record *conn_reserve_reply(struct conn *conn, unsigned op, uint32_t id, uint32_t body, uint32_t *room);

/* Would conn_reserve() find room for a body of so many bytes? If conn_reserve() finds none, the peer may later count as
 * stalled. A caller that can do without the record asks here first, so that the peer is not blamed. */
bool conn_has_room(const struct conn *conn, uint32_t body);

/* The record that was reserved last is complete with a body of `length` bytes. */
void conn_commit(struct conn *conn, struct wire_record *record, uint32_t length);

/* Reserve and commit at once, for what is said seldom: a record with this head (its length is not used), and a body of
 * two pieces, which are copied and may be empty. False: there was no room, as of conn_reserve(). */
bool conn_say(struct conn *conn, const struct wire_record *head, const void *body, size_t length, const void *rest,
	      size_t rest_length);

/* Messages with records are numbered from 1 on. These are the number of the message of the record that was reserved
 * last, and of the first message that is not posted; in closed(), that one and later ones never will be. */
uint64_t conn_message_begun(const struct conn *conn);
uint64_t conn_message_unposted(const struct conn *conn);

/* A number that changes when a record comes, or bytes of reads and writes move, if the fabric can tell that. */
uint64_t conn_moved(const struct conn *conn);

/* In a later turn, writable() is called, and the record for which record() answered -EAGAIN comes again. */
void conn_wait_writable(struct conn *conn);

/*
 * The work of a turn is bounded, so that no peer makes the others wait: after conn_group_attr.turn the rest of a
 * message is parked, and connections take turns. If more has come than fits in one turn, a connection that has had its
 * visit waits behind the others, also with what comes of it now: so a peer that asks for little does not wait for all
 * that others have asked for.
 *
 * As records are short, the clock is not read for each of them. So record() says how long one took if that was more
 * than some microseconds, and does one that takes more than some hundred in steps:
 *
 *     do
 *             done = one_step(agent);
 *     while (!done && conn_time_left(conn));
 *     if (!done) {
 *             conn_yield(conn);
 *             return -EAGAIN;
 *     }
 *
 * The service keeps what the steps have done. The record comes again with the same bytes, but at another address. As
 * the connection waits only for its turn, it does not count as stalled, and conn_group_progress says that there is more
 * to do, so that no thread sleeps meanwhile.
 */

/* In record(): the record took as long as so many short ones, of about a microsecond. */
void conn_charge(struct conn *conn, unsigned records);

/* In record(), now and then: whether it may go on. Asks the clock. */
bool conn_time_left(struct conn *conn);

/* In record(), which then answers -EAGAIN: a step was done, and more remains. */
void conn_yield(struct conn *conn);

/* Post what was committed now rather than at the end of the turn. */
void conn_flush(struct conn *conn);

/* Is everything committed posted, nothing posted in flight, and no record or writable() to come again? */
bool conn_idle(const struct conn *conn);

/*
 * transfer.c: reads and writes of the peer's memory.
 */

/* Embedded in what its user knows of the transfer; lives until done(), which is called once: from a later turn
 * of the group, or when the connection is freed (FABRIC_FLUSHED). After it nothing touches the memory. */
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

/* Push a value behind the message that is being built. It belongs to a record that is reserved and not committed, and
 * gets WIRE_PUSHED here. conn_push_room() must have said yes. done(): the memory may be used again, whether or not the
 * peer took the value. */
bool conn_push_room(const struct conn *conn, size_t len);
void conn_push(struct conn *conn, struct conn_transfer *transfer, struct wire_record *record,
	       const struct fabric_sge *from);

/* In record(), for one with WIRE_PUSHED: say where its value goes. If record() does not call this, the value is
 * dropped; also if it answers -EAGAIN, unless the record waits only for its turn. */
int conn_pull(struct conn *conn, struct conn_transfer *transfer, const struct fabric_sge *to);
/* conn_wait_writable() for a request that waits for a value for which conn_pull() was called. This value comes before
 * all that is pushed behind the request, so what is pushed there may wait, too. */
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

/* Post them in order by one doorbell. Writes take effect in order, reads see the writes before them; a write may
 * overtake a read before it. done() is called once, when all have completed; if one failed, with its status when it was
 * the last, else with FABRIC_FLUSHED. Each counts as a transfer. -EAGAIN: nothing was posted. -EINVAL: none, more than
 * CONN_CHAIN_MAX, or more than the connection's transfers. -EOPNOTSUPP: see fabric_limits.write_imm and atomics;
 * nothing was posted, and the connection goes on. */
int conn_transfer_chain(struct conn *conn, struct conn_transfer *transfer, const struct conn_part *parts,
			unsigned count);

#endif
