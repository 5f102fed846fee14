/* internal.h: what the files of this room share. */
#ifndef RDMAD_CONN_INTERNAL_H
#define RDMAD_CONN_INTERNAL_H

#include "conn/conn.h"

enum conn_state {
	CONN_CONNECTING, /* request sent */
	CONN_ACCEPTING,  /* accept sent, the peer has not confirmed */
	CONN_PROVING,    /* both have confirmed; a client has not proved that it has its key, or MUNGE who either is */
	CONN_ESTABLISHED,
	CONN_CLOSING,  /* in error; flushes and the disconnect are coming */
	CONN_FLUSHING, /* closing, and the fabric's last event of its endpoint came */
	CONN_DEAD,     /* nothing in flight: the end of the turn frees it */
};

/* The words to a peer that has to go. */
enum conn_leaving {
	CONN_STAYS,
	CONN_LEAVES, /* to ask for nothing more, and to close */
	CONN_LEFT,   /* that nothing of it is taken any more */
};

enum conn_event {
	CONN_EVENT_ESTABLISHED,
	CONN_EVENT_PROVED,       /* the client has its key */
	CONN_EVENT_REFUSED,      /* rejected or unreachable: there is no connection to take down */
	CONN_EVENT_DISCONNECTED, /* this or the one above is the fabric's last of an endpoint */
	CONN_EVENT_CLOSE,        /* this side wants the end */
	CONN_EVENT_DRAINED,      /* closing, and nothing in flight any more, or its time is over */
};

#define CONN_UNPROVED 64 /* so many clients of a group that have not proved their keys there may be in any case */
#define CONN_POLL_BATCH 32
#define CONN_CLOCK_UNITS 16  /* records between two looks at the clock */
#define CONN_UNIT_BYTES 4096 /* of a record, which take as long as a short one */
#define CONN_PUSHES 128      /* values of either side that are pushed and have not arrived */
#define CONN_VISITS 4        /* of a long turn: the part of it that one connection has before others are served */
#define CONN_HOLDS 16        /* so often may answers wait for what is at hand of the same peer */

/* A message or an immediate that came too early, or whose answers found no room: copied, so that the shared
 * receive goes back at once and a slow peer uses up only its own memory. */
struct conn_parked {
	struct conn_parked *next;
	bool immediate; /* of a write; there are no bytes */
	uint32_t imm;
	size_t bytes, offset, told, room;
	_Alignas(8) char data[];
};

struct conn {
	/* Two cache lines, which are all that most records need. */
	void *context; /* see conn_context() */
	const struct conn_ops *ops;
	struct conn_group *group;
	enum conn_state state;
	uint32_t message_size;
	struct memory_buffer *open; /* the message being built */
	uint32_t open_used;
	uint32_t open_pushes; /* of `pushes`, those of the message being built */
	struct list dirty;    /* in group->dirty: something to post or a credit to return */
	uint64_t records_in, records_out;

	struct list node;              /* in group->connections */
	struct list ending;            /* in group->closing */
	struct pending_entry fresh;    /* accepted, and may have asked for nothing yet */
	struct pending_entry unproved; /* a proof is to come from it */
	struct list parting; /* in group->parting: its end came, and perhaps not yet all that it had sent before */
	uint64_t parts_at;   /* group->taken by which that has come */
	struct fabric_endpoint *endpoint;
	const struct fabric_transport *transport; /* outlives the endpoint, for the last words in closed() */
	bool admits;                              /* the peer was told that it is admitted */
	bool admitted;                            /* the peer has said that it admits this side */
	bool unshared;                            /* its device has no shared receives */
	bool lived;                               /* was established: it counts as accepted, and then as closed */
	uint16_t say;                             /* flags of the next message */
	struct conn_attr attr;                    /* its own or the group's */
	uint32_t completions;                     /* that it may have outstanding */
	uint32_t in_flight;                       /* posted work requests that will complete */
	uint64_t id, opened, deadline;
	uint64_t heard;  /* when something came from it */
	uint64_t looked; /* the tick at which the peer's end was looked for */
	struct {
		uint32_t left;       /* messages that may be begun */
		uint32_t max;        /* what the peer granted at first */
		uint32_t granted;    /* to the peer */
		uint32_t owed;       /* taken receives not yet told to the peer */
		uint32_t unreturned; /* received and not told: more than granted is a violation */
	} credit;
	struct {
		struct memory_buffer *ready, **ready_tail; /* full messages before the open one, linked by next */
		struct list posted;                        /* buffers in flight */
		uint32_t buffers;                          /* of the pool that it holds */
		uint32_t window;                           /* most of these for records */
		bool watched;   /* a device acknowledges what it is sent, whatever its program does */
		uint64_t since; /* when one was posted with none in flight, or one completed */
	} send;
	struct {
		struct list node; /* in group->stuck: reserve failed or messages parked */
		uint64_t since;
		bool writable; /* writable() is wanted */
		bool busy;     /* it waits for its turn only */
		bool behind;   /* it waits for a value only that is pulled already, before all that is not */
	} stuck;
	struct {
		struct conn_parked *first, **tail;
		uint64_t bytes;
		uint64_t still_until; /* its stream stands still before values of parked messages; 0: it does not */
	} parked;
	struct {
		struct list list; /* in flight */
		uint32_t count;   /* requests of these */
		uint64_t bytes;   /* of all of them */
		uint64_t since;   /* when one was begun with none in flight, or one was seen to get on */
		uint64_t moved;   /* fabric_moved_bytes() at that look */
		uint64_t begun;   /* bytes of all that ever were */
	} transfer;
	struct {
		bool used;               /* its client has a limit of bytes or requests a second */
		uint64_t bytes, records; /* counted for its client */
		uint64_t until;          /* the time at which its client may go on */
	} pace;
	struct {
		struct conn_transfer *first, **tail; /* of messages that are not posted */
		uint32_t count;                      /* of transfers, either side's */
		uint32_t held;                       /* so often was nothing posted, as more was at hand */
		bool pulled;                         /* the record at hand told where its value goes */
	} push;
	struct { /* buffers of its own: large messages, or its own domain */
		bool used;
		struct memory_pool *pool; /* from when it is established (or connects), else NULL */
		uint64_t bytes;           /* of the budget for them */
		uint32_t posted;          /* receives */
	} own;
	struct {
		bool used;      /* its silence is looked into */
		bool asks;      /* by asking its program, which is known to answer; else its host */
		bool pending;   /* asked, and not answered yet */
		bool lost;      /* at the last check its host had not acknowledged for long */
		uint64_t since; /* when it was asked last */
		uint64_t moved; /* fabric_moved_bytes() then */
	} probe;
	struct {
		enum conn_leaving state; /* what the peer was told, by conn_set_leaving() */
		uint64_t since;          /* when */
		uint16_t told;           /* flags by which the peer told this side, before it was established */
	} leave;
	struct { /* when the timers check it */
		uint64_t due;
		uint32_t at; /* in group->heap */
	} timer;
	struct {
		uint64_t round; /* of the group, in which it took ... */
		uint64_t taken; /* ... so many ns of its turns */
	} visit;
	uint64_t begun;    /* messages with records */
	uint64_t unposted; /* of them, the dropped ones */
	uint64_t messages_in, messages_out, bytes_in, bytes_out;
	struct auth_admission admission; /* of an accept */
	struct conn_prover *prover;      /* until both have proved that they have the key; NULL: none is asked for */
	struct conn_session *session;    /* from then on; NULL: no key was asked for */
	struct wire_request request;
	struct wire_accept accept;
	int error;
	enum wire_reason refusal; /* the server's */
	char reason[256];
	char peer[96];
};

_Static_assert(offsetof(struct conn, context) == 0, "conn_context() looks there");

struct conn_group {
	struct conn_group_attr attr, asked; /* asked: before the devices cut it */
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct memory_pool *receives; /* NULL: no device shares any */
	struct memory_pool *sends;
	uint32_t posted;       /* shared receives, of all devices */
	uint32_t receives_max; /* most of these */
	uint32_t inline_size;
	uint32_t pushes;          /* in flight on one connection; 0: the fabric has none */
	bool shared;              /* whichever device a connection gets, it may take from the shared receives */
	uint32_t completions;     /* that the queue has room for beside those of the connections */
	uint32_t completions_max; /* and with them */
	uint64_t taken;           /* from the queue, ever */
	bool device_bound;        /* attr.max_connections is what the devices have room for */
	bool sender_waits;        /* for a receive; where not, all are posted before it can send */
	struct list connections, dirty, stuck, closing, parting;
	struct pending fresh, unproved;
	struct fabric_completion batch[CONN_POLL_BATCH]; /* polled; those from batch_at on are for the next turn */
	int batch_at, batch_end;
	int32_t units;    /* of work until the clock is looked at */
	bool visited;     /* the connection whose records are handed on had enough of the turn */
	bool over;        /* the turn is at its end: no other is visited */
	bool unfinished;  /* there is work for the next turn */
	bool holds;       /* of those in `dirty` some are held: see conn_holds() */
	bool crowded;     /* there is more than a turn takes: what each connection takes of it is counted */
	uint64_t round;   /* in each, all that wait have a visit */
	uint64_t allowed; /* ns of this turn, until now */
	uint64_t turn_began, visit_began; /* 0: not looked at yet */
	uint64_t parked_bytes;
	struct conn_parked *spare; /* memory for what is parked next */
	uint32_t spares;
	struct conn **heap; /* all connections, that with the earliest due first */
	uint32_t heap_count, heap_room;
	uint32_t checks;                 /* of credentials, by attr.munge's thread ... */
	_Atomic(struct check *) checked; /* ... and those of them that are done, the last first */
	bool dead;                       /* there are connections that the next turn frees */
	uint32_t ending;                 /* connections in `closing` */
	_Atomic uintptr_t turning;       /* contracts: the thread whose turn runs, 0 between turns */
	uint64_t now;                    /* of the running turn */
	uint64_t deadline;               /* of the first of the heap */
	struct conn_group_stats stats;
	/* State of conn_group_step_stats(): the next connection, NULL outside of a walk; the id of the last one that
	 * was seen, as ids rise along the list; what those had, and what of them are among `stats` by now. */
	struct list *walk;
	uint64_t walked;
	struct conn_group_stats seen, gone;
};

/* Work request ids: a pointer to the struct with its kind in the low bits. What is unsignaled completes only if it
 * fails, and names nothing: by then the struct may be others'. */
enum { CONN_ID_RECEIVE, CONN_ID_SEND, CONN_ID_PROBE, CONN_ID_UNSIGNALED, CONN_ID_TRANSFER, CONN_ID_MASK = 7 };

/*
 * conn.c
 */
void conn_handle(struct conn *conn, enum conn_event event);
void conn_bury(struct conn *conn);
void conn_told_refusal(struct conn *conn, const struct wire_reject *reject); /* by the server: the end */
void conn_add_stats(const struct conn *conn, struct conn_group_stats *into);
void conn_group_leave_walk(struct conn_group *group, const struct conn *conn); /* group.c: before it is unlinked */

/*
 * munge.c: credentials that are checked. A check outlives its connection: its result is dropped then.
 */
struct check {
	struct list node; /* in the thread's queue */
	struct check *next;
	struct conn_group *group;
	struct conn *conn;                    /* the group's; NULL: it has ended ... */
	atomic_bool abandoned;                /* ... and the thread need not look */
	int rc;                               /* the outcome: 0, or -errno and ... */
	char why[AUTH_WHY];                   /* ... why, in words */
	uid_t uid;                            /* the client's */
	struct auth_munge_payload payload;    /* what it is to be about, then what it is about */
	char credential[AUTH_CREDENTIAL_MAX]; /* the client's, then the server's */
};

/* Has it checked: the outcome comes by conn_prove_checked(), in a later turn. NULL: too many wait, or there is no
 * memory or thread, which is logged. */
struct check *conn_check_new(struct conn *conn, const struct auth_transcript *th, const char *credential,
			     size_t length);
void conn_check_abandon(struct check *check); /* its connection ends. NULL is passed over */
void conn_check_free(struct check *check);
/* In a turn: hand on what is done. How many there were. */
int conn_checks_collect(struct conn_group *group);
/* The thread is stopped, and the connections are buried. */
void conn_checks_drop(struct conn_group *group);

/*
 * prove.c
 */
/* `side`: this end. 0 or -ENOMEM. NULL: no prover. */
int conn_prover_new(struct conn *conn, const struct auth_key *key, enum auth_side side);
void conn_prover_free(struct conn *conn);
void conn_session_free(struct conn *conn);
/* Is it a client from which a proof is to come? */
bool conn_unproved(const struct conn *conn);
/* Puts the server's proof into the accept. */
void conn_prove_accept(struct conn *conn);
/* A client asks for encryption, and a server agrees, where attr.encrypt says so and it can be: in place of a nonce by
 * chance. 0 or -errno; -ENOKEY, -ENOPROTOOPT: it is required and there is no key, or the kernel lacks it. */
int conn_prove_ask(struct conn *conn, const struct sockaddr *sa);
int conn_prove_agree(struct conn *conn);
/* The server's answer has left: from now on it is encrypted, if that was agreed on. */
void conn_prove_encrypt(struct conn *conn);
/* The client looks at it. False: the connection is closed. */
bool conn_prove_answer(struct conn *conn);
/* The client commits its own, as the first record; and the server, of a client that MUNGE has proved. Nothing is left
 * to prove here. False: the connection is closed. */
bool conn_prove_begin(struct conn *conn);
/* A client whose server has to prove itself by MUNGE, in answer to what the client says by the second call. */
bool conn_prove_awaits(const struct conn *conn);
void conn_prove_speak(struct conn *conn);
/* Whether it sends before it is established: such a client its proof, a server why it is refused. */
bool conn_prove_speaks(const struct conn *conn);
/* The server says it to a client that was refused, perhaps before the fabric said that it is established. */
void conn_prove_say_refusal(struct conn *conn);
/* The proof is looked for in the first message. True: there are further records, from *offset on. */
bool conn_prove_received(struct conn *conn, const void *data, size_t bytes, size_t *offset);
/* munged has answered; the check is the prover's, or freed. */
void conn_prove_checked(struct conn *conn, struct check *check);
void conn_prove_failed(struct conn *conn); /* it does not come */
void conn_prove_lost(struct conn *conn);   /* the other end has gone meanwhile */
void conn_prove_init(struct conn_group *group);
/* One that was accepted: if it is to prove itself, others give way where such are too many, or hold too much memory. */
void conn_prove_enter(struct conn *conn);

/*
 * message.c: building, posting, taking apart
 */
void conn_message_received(struct conn *conn, struct memory_buffer *buffer, uint32_t bytes);
void conn_immediate_received(struct conn *conn, uint32_t imm);
void conn_message_sent(struct conn *conn, struct memory_buffer *buffer);
void conn_messages_resume(struct conn *conn); /* parked messages, then writable() */
void conn_messages_flush(struct conn *conn);
void conn_told_to_leave(struct conn *conn, uint16_t flags);
void conn_messages_drop(struct conn *conn); /* gives back what is not sent, and the parked */
void conn_mark_stuck(struct conn *conn);
void conn_bad_record(struct conn *conn, int error);
void conn_consumed(struct conn *conn); /* a receive, of a message with records or of an immediate */
/* Hand each record from *offset on to the service. 0, -EAGAIN with *offset at the record to try again or to go on with,
 * or the violation. Of the records before *told, at first *offset, the service was told: it does not fetch for them at
 * each try. */
int conn_message_take_apart(struct conn *conn, const void *data, size_t bytes, size_t *offset, size_t *told);
int conn_hand_immediate(struct conn *conn, uint32_t imm); /* 0, or the violation */
static inline void conn_mark_dirty(struct conn *conn)
{
	if (unlikely(!list_linked(&conn->dirty)))
		list_add_tail(&conn->group->dirty, &conn->dirty);
}
/* Whether it sends. */
static inline bool conn_speaks(const struct conn *conn)
{
	return likely(conn->state == CONN_ESTABLISHED) || (conn->state == CONN_PROVING && conn_prove_speaks(conn));
}
/* Whether a message could be begun, but for the pool's limit. */
static inline bool conn_may_send(const struct conn *conn)
{
	return conn->credit.left && conn->send.buffers < conn->send.window;
}

/*
 * pace.c: only of connections with `pace.used`, but the first and the last
 */
void conn_pace_choose(struct conn *conn); /* its client, or what that may, is another one */
bool conn_pace_waits(struct conn *conn);  /* nothing more is taken of it for now; a timer is set */
void conn_pace_end(struct conn *conn);

/*
 * park.c: what came too early, or has to wait
 */
void conn_park_message(struct conn *conn, const void *data, size_t bytes, size_t offset);
void conn_park_immediate(struct conn *conn, uint32_t imm);
int conn_parked_resume(struct conn *conn);  /* 0, -EAGAIN, or the violation */
void conn_parked_forget(struct conn *conn); /* it is closing: its memory counts no more */
void conn_parked_drop(struct conn *conn);
void conn_spares_free(struct conn_group *group);

/*
 * own.c: buffers of a connection's own
 */
/* Decide whether it has some, and take them from the group's budget. -ENOBUFS: there is too little left. */
int conn_own_reserve(struct conn *conn);
uint16_t conn_own_credits(uint32_t message_size); /* to grant, of large messages */
void conn_own_release(struct conn *conn);
int conn_own_open(struct conn *conn); /* make the first, and post receives */
/* A receive completed, and what was in it was taken. */
void conn_own_received(struct conn *conn, struct memory_buffer *buffer);
/* Receives that its peer may need: a message each credit, and messages that take none. */
uint32_t conn_receives(const struct conn *conn);

/*
 * transfer.c
 */
void conn_transfer_completed(struct conn_transfer *transfer, enum fabric_status status);
void conn_transfers_flush(struct conn *conn); /* transfers that will never complete */
/* The next `count` values that the peer pushes are dropped. */
void conn_drop_pushed(struct conn *conn, unsigned count);
/* Pushes that wait, as requests behind their message; the next one. And they are in flight now. */
const struct conn_transfer *conn_pushes_chain(const struct conn_transfer *first, unsigned count, struct fabric_wr *wr);
void conn_pushes_posted(struct conn *conn, unsigned count);
/* Records of the parked message, from its offset on, come without their values. */
void conn_park_pushed(struct conn *conn, struct conn_parked *parked);
/* ns in which a transfer gets on: completes, or where the fabric can tell, moves a byte. Else a link's speed is
 * guessed: a device's is at least a MiB a second. */
uint64_t conn_transfer_timeout(const struct conn *conn);

/*
 * timer.c
 */
void conn_timers_check(struct conn_group *group);
void conn_choose_probe(struct conn *conn); /* how its silence is looked into */
int conn_timer_add(struct conn *conn);     /* 0 or -ENOMEM */
void conn_timer_remove(struct conn *conn);
void conn_timer_move(struct conn *conn, uint64_t due);
/* Check it at `when`, or earlier. */
static inline void conn_timer_set(struct conn *conn, uint64_t when)
{
	if (unlikely(when < conn->timer.due))
		conn_timer_move(conn, when);
}

/*
 * group.c
 */
void conn_group_post_receives(struct conn_group *group);
/* Asks the clock: whether the present connection had enough, or all of the turn is over. */
bool conn_group_check_clock(struct conn_group *group);
/* Whether others wait, and it has had as much of this round as a visit is: what comes of it now waits behind theirs.
 * A client that asks for little so goes before all that ask for much, however many they are. */
bool conn_had_visit(const struct conn *conn);
/* For must(): no other thread turns the group. */
bool conn_group_is_mine(const struct conn_group *group);

#endif
