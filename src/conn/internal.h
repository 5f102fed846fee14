/* internal.h: what the files of this room share. */
#ifndef RDMAD_CONN_INTERNAL_H
#define RDMAD_CONN_INTERNAL_H

#include "conn/conn.h"

enum conn_state {
	CONN_CONNECTING, /* request sent */
	CONN_ACCEPTING,  /* accept sent, the peer has not confirmed */
	CONN_ESTABLISHED,
	CONN_CLOSING, /* in error; flushes and the disconnect are coming */
	CONN_DEAD,    /* nothing in flight: the end of the turn buries it */
};

enum conn_event {
	CONN_EVENT_ESTABLISHED,
	CONN_EVENT_REFUSED,      /* rejected or unreachable: there is no connection to take down */
	CONN_EVENT_DISCONNECTED, /* this or the one above is the fabric's last of an endpoint */
	CONN_EVENT_CLOSE,        /* this side wants the end */
	CONN_EVENT_DRAINED,      /* closing, and nothing in flight any more, or out of patience */
};

#define CONN_POLL_BATCH 32
#define CONN_LOOK_UNITS 16   /* records between two looks at the clock */
#define CONN_UNIT_BYTES 4096 /* of a record, which take as long as a short one */
#define CONN_VISITS 8        /* of a long turn: the part of it that one connection has before others are served */

/* A message or an immediate that came too early, or whose answers found no room: copied, so that the shared
 * receive goes back at once and a slow peer uses up only its own memory. */
struct conn_parked {
	struct conn_parked *next;
	bool immediate; /* of a write; there are no bytes */
	uint32_t imm;
	size_t bytes, offset;
	_Alignas(8) char data[];
};

struct conn {
	struct list node;  /* in group->connections */
	struct list dirty; /* in group->dirty: something to post or a credit to return */
	struct list stuck; /* in group->stuck: reserve failed or messages parked */
	struct list grave; /* in group->closing */
	struct conn_group *group;
	struct fabric_endpoint *endpoint;
	const struct fabric_transport *transport; /* outlives the endpoint, for the last words in closed() */
	enum conn_state state;
	bool disconnected; /* the fabric's last event of this endpoint came */
	bool probes;       /* the transport says nothing of a dead host */
	bool probing;      /* a keepalive is in flight */
	bool want_writable;
	bool busy; /* stuck, but waits for its turn only */
	const struct conn_ops *ops;
	void *context;
	struct conn_attr attr;   /* its own or the group's */
	struct memory_pool *own; /* buffers of a connection with large messages or its own domain, else NULL */
	uint32_t completions;    /* that it may have outstanding */

	struct memory_buffer *open; /* the message being built */
	uint32_t open_used;
	uint32_t message_size;
	struct memory_buffer *ready, **ready_tail; /* full messages before it, linked by next */
	uint32_t in_flight;                        /* posted work requests that will complete */
	struct list sending;                       /* their buffers */
	uint32_t credits;                          /* messages that may be begun */
	uint32_t credits_max;                      /* what the peer granted at first */
	uint32_t granted;                          /* to the peer */
	uint32_t owed;                             /* taken receives not yet told to the peer */
	uint32_t unreturned;                       /* received and not told: more than granted is a violation */
	struct conn_parked *parked, **parked_tail;
	struct list transfers; /* in flight */
	uint32_t transfer_count;
	uint64_t transfer_since; /* when one was begun with none in flight, or the last completed */

	uint64_t id, opened, deadline, last_traffic, probed, stuck_since;
	uint64_t messages_in, messages_out, records_in, records_out, bytes_in, bytes_out;
	uint64_t messages_seen; /* at the last look of the timers */
	struct wire_request request;
	struct wire_accept accept;
	int error;
	enum wire_reason refusal; /* the server's */
	char reason[160];
	char peer[96];
};

struct conn_group {
	struct conn_group_attr attr;
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct memory_pool *receives, *sends;
	uint32_t posted; /* shared receives */
	uint32_t wanted; /* shared receives that the present connections are worth */
	uint32_t inline_size;
	uint32_t completions; /* that the queue has room for beside those of the connections */
	bool device_bound;    /* attr.max_connections is what the devices have room for */
	struct list connections, dirty, stuck, closing;
	struct fabric_completion batch[CONN_POLL_BATCH]; /* polled; those from batch_at on are for the next turn */
	int batch_at, batch_end;
	int32_t units;                    /* of work until the clock is looked at */
	bool visited;                     /* the connection whose records are handed on had enough of the turn */
	bool over;                        /* and the turn is at its end */
	bool unfinished;                  /* there is work for the next turn */
	uint64_t allowed;                 /* ns of this turn, until now */
	uint64_t turn_began, visit_began; /* 0: nobody looked yet */
	struct conn_parked *spare;        /* memory for what is parked next, each of message_size */
	uint32_t spares;
	_Atomic uintptr_t turning; /* contracts: the thread whose turn runs, 0 between turns */
	uint64_t now;              /* of the running turn */
	uint64_t deadline;         /* of the next look at the timers */
	struct conn_group_stats stats;
};

#define CONN_SPARES 64 /* kept by a group; a peer's credits bound what is parked for it */

/* A transfer may be long: gigabytes on a slow link. */
#define TRANSFER_PATIENCE(conn) (4 * (conn)->group->attr.stall_timeout)

/* Work request ids: a pointer to the struct with its kind in the low bits. What is unsignaled completes only if it
 * fails, and names nothing: by then the struct may be others'. */
enum { CONN_ID_RECEIVE, CONN_ID_SEND, CONN_ID_PROBE, CONN_ID_UNSIGNALED, CONN_ID_TRANSFER, CONN_ID_MASK = 7 };

/*
 * conn.c
 */
void conn_handle(struct conn *conn, enum conn_event event);
void conn_bury(struct conn *conn);
void conn_add_stats(const struct conn *conn, struct conn_group_stats *into);

/*
 * message.c: building, posting, taking apart
 */
void conn_message_received(struct conn *conn, struct memory_buffer *buffer, uint32_t bytes);
void conn_immediate_received(struct conn *conn, uint32_t imm);
void conn_message_sent(struct conn *conn, struct memory_buffer *buffer);
void conn_messages_resume(struct conn *conn); /* parked messages, then writable() */
void conn_messages_flush(struct conn *conn);
void conn_messages_drop(struct conn *conn); /* gives back what is not sent, and the parked */
void conn_spares_free(struct conn_group *group);
void conn_mark_stuck(struct conn *conn);
int conn_post_receive(struct conn *conn, struct memory_buffer *buffer);

/*
 * transfer.c
 */
void conn_transfer_completed(struct conn_transfer *transfer, enum fabric_status status);
void conn_transfers_flush(struct conn *conn); /* those that will never complete */

/*
 * timer.c
 */
void conn_timers_look(struct conn_group *group);
void conn_timer_set(struct conn_group *group, uint64_t when);

/*
 * group.c
 */
void conn_group_want_receives(struct conn_group *group, int32_t change);
/* Asks the clock: whether the present connection had enough, or all of the turn is over. */
bool conn_group_look(struct conn_group *group);
/* For must(): no other thread turns the group. */
bool conn_group_is_mine(const struct conn_group *group);

#endif
