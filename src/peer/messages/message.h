/*
 * message.h: what the files of messages know of each other: message.c (life, records, confirmation), send.c (what
 * leaves), offer.c and intake.c (long messages, leaving and coming), limit.c (rates), inbox.c (what came), control.c.
 *
 * A message has a class, and a number in it that is given when it leaves. A stream belongs to one of three uses; what a
 * peer has sent for a use and the other end has not received is bounded, so a program that receives nothing stops its
 * own messages only.
 */
#ifndef RDMAD_PEER_MESSAGES_MESSAGE_H
#define RDMAD_PEER_MESSAGES_MESSAGE_H

#include "peer/messages/messages.h"

enum message_use { MESSAGE_PROGRAM, MESSAGE_CONTROL, MESSAGE_COLLECTIVE, MESSAGE_USES };
_Static_assert(MESSAGE_USES == WIRE_PEER_USES && PEER_CLASSES == WIRE_PEER_CLASSES, "what the wire says");

#define MESSAGE_BUCKETS 16               /* of streams of collectives */
#define MESSAGE_RETAINED (256u * 1024)   /* bytes of a class that are kept until they are confirmed */
#define MESSAGE_UNCONFIRMED (16u * 1024) /* bytes that come before they are confirmed */
#define MESSAGE_PIECE (256u * 1024)      /* of a long message, read at a time */
#define MESSAGE_PIECES 4                 /* under way with a peer */
#define MESSAGE_STORED_SIZES 3

/* A short message that is kept: one that came and was not received (unexpected), or one that left and is not confirmed.
 * Or the place of a long one in the inbox. */
struct stored {
	struct list node; /* of an inbox_queue's messages, or of outbox.retained */
	uint64_t stream, number, length;
	uint8_t message_class, size;
	struct intake *intake; /* of a long one; NULL */
	char data[];
};

/*
 * A long message that a peer offers. It is one of peer_message.all, and waits: in the inbox, by its place there, for a
 * receive; then in `to_read` for pieces of it to be asked for; in `in_flight` for the last of these; in `taken` for
 * the peer to be told.
 */
struct intake {
	struct list node, all;
	struct peer *peer;
	struct stored *stored;        /* until it is received */
	struct rdma_request *request; /* that it is read for; NULL */
	struct reach reach;
	uint64_t stream, number, length, addr;
	uint64_t ready, posted, done; /* bytes: that may be asked for, that were, that are here */
	uint32_t rkey, pieces;        /* pieces: under way */
	uint8_t message_class;
	bool stale; /* of a connection that is gone: to be offered again */
	bool back;  /* withdrawn */
};

/* A long message that this side offers. */
struct offer {
	struct list node;             /* of outbox.offers, by number */
	struct rdma_request *request; /* NULL: given up; the peer is still to say so */
	struct reach reach;
	struct fabric_window *window; /* by which the peer reads it; NULL: by its region's key */
	uint64_t stream, number, length, ready;
	bool again;     /* to be said again on this connection */
	bool back;      /* withdrawn */
	bool back_said; /* on this connection */
};

/* A piece of a long message that is being read. */
struct piece {
	struct conn_transfer transfer;
	struct intake *intake; /* NULL: free */
	uint64_t length;
};

struct inbox_queue {
	struct list receives;                 /* rdma_request */
	struct list unexpected[PEER_CLASSES]; /* by class, in the order of their coming */
};

/* Messages that leave, by class. */
struct outbox {
	uint64_t next, confirmed; /* numbers */
	uint64_t resend;          /* up to `next`, they are to be sent again on this connection */
	uint64_t kept;            /* bytes retained */
	struct list retained, offers;
	struct list waiting[MESSAGE_USES]; /* rdma_request: no room, no credit, no connection */
};

/* Costs (WIRE_PEER_COST) since the beginning. */
struct message_out {
	uint64_t sent, room;
};

struct message_in {
	uint64_t came, received, told; /* told: how far the peer may go */
};

/* A range of streams that are not used any more. */
struct forgotten {
	uint64_t first, last; /* last is not of it */
};

struct peer_message {
	bool open;    /* there is a connection, and both know where they are */
	bool gone;    /* message_clear() was called */
	bool retains; /* messages are kept until they are confirmed, for another connection */
	bool reading; /* pieces are being asked for */
	bool news;    /* there is something to say of offers */
	uint64_t window;
	uint64_t flushed; /* the engine's turn in which something was posted at once */
	struct outbox out[PEER_CLASSES];
	struct message_out use_out[MESSAGE_USES];
	uint64_t next_in[PEER_CLASSES];
	struct message_in use_in[MESSAGE_USES];
	uint64_t unconfirmed; /* bytes that came since this side confirmed */
	bool say_confirm, ask;
	uint64_t asked;   /* messages that had left when confirmation was asked for */
	unsigned answers; /* of control.c, that wait for room */

	struct inbox_queue queue[2 + MESSAGE_BUCKETS];
	struct list spare[MESSAGE_STORED_SIZES];
	struct forgotten *forgotten;
	unsigned forgotten_count, forgotten_room;

	struct list all, to_read[PEER_CLASSES], in_flight, taken; /* intakes */
	struct list to_read_node;                                 /* of rdma_context.to_read */
	struct list limited_node;                                 /* of rdma_context.limited */
	struct peer *peer;
	unsigned takens; /* how many are `taken` */
	struct piece piece[MESSAGE_PIECES];

	uint64_t rate;        /* bytes a second; 0: no limit */
	int64_t tokens;       /* bytes that may leave; below 0: later */
	uint64_t tokens_time; /* when they were counted */
	bool limited;         /* something waits for them */
};

static inline enum message_use message_use(uint64_t stream)
{
	return stream == PEER_STREAM_PROGRAM   ? MESSAGE_PROGRAM
	       : stream == PEER_STREAM_CONTROL ? MESSAGE_CONTROL
					       : MESSAGE_COLLECTIVE;
}

static inline const char *message_gone_why(const struct peer *peer)
{
	return *peer->why ? peer->why : "it has gone";
}

/* From first to last. */
extern const uint8_t message_ranks[PEER_CLASSES];

/*
 * message.c
 */
/* The peer breaks the protocol: its connection ends with these words. -EPROTO. */
int message_violation(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* So much of what came was received: the peer may send more. */
void message_received(struct peer *peer, uint64_t stream, uint64_t cost);
/* Say what is to be said: confirmations, what was taken. False: no credit. */
bool message_say(struct peer *peer);
/* Its peer has gone: with words. */
void message_fail_gone(struct rdma_request *request);

/*
 * send.c
 */
enum sent { SENT, SENT_NO_ROOM, SENT_NOT_NOW, SENT_FAILED }; /* no room: of this use; failed: for good, logged */

void message_outbox_init(struct peer_message *m);
/* Send what waits, as far as there is room. */
void message_pump(struct peer *peer);
/* Behind a message_send() that is one of perhaps many: posts it if none was since the engine's last turn. */
void message_gather(struct peer *peer);
/* Messages up to `next` came: forget them. */
void message_confirmed(struct peer *peer, unsigned message_class, uint64_t next);

/*
 * offer.c: long messages that leave
 */
/* The first of a class that waits: it leaves its list. */
enum sent message_offer_send(struct peer *peer, struct rdma_request *request);
/* Say the one of this number again. False: no credit. */
bool message_offer_again(struct peer *peer, unsigned message_class, uint64_t number);
/* Says what there is to say of offers of earlier connections, and of withdrawn ones. False: no credit. */
bool message_offers_say(struct peer *peer);
/* How much of them may be read. False: no credit, or not yet. */
bool message_offers_feed(struct peer *peer, unsigned message_class);
int message_taken_record(struct peer *peer, const struct wire_record *record, const void *body);
void message_offers_closed(struct peer *peer);
void message_offers_resumed(struct peer *peer);
void message_offers_clear(struct peer *peer);

/*
 * intake.c: long messages that come
 */
void message_intakes_init(struct peer_message *m);
int message_offer_record(struct peer *peer, const struct wire_record *record, const struct wire_peer_offer *offer);
/* A receive takes one out of the inbox: it is read. */
void message_intake_begin(struct intake *intake, struct rdma_request *request);
void message_intake_drop(struct intake *intake); /* no receive will come for it */
/* Tell the peer of what is here. False: no credit. */
bool message_taken_say(struct peer *peer);
/* Ask for pieces, as far as may be. */
void message_read_on(struct peer *peer);
void message_intakes_closed(struct peer *peer);
void message_intakes_clear(struct peer *peer);
void message_intakes_free(struct peer_message *m);

/*
 * register.c: memory that programs registered
 */
int message_reach(struct peer *peer, const void *addr, size_t len, unsigned access, struct reach *out);
void message_unreach(struct peer *peer, struct reach *reach); /* also one that reaches nothing */
/* The peer, and no other, may read it by the window's key; *window stays NULL where the device has none: by the
 * region's. As message_reach(), and -EAGAIN: no room for it now; -ENOTCONN. To be closed before message_unreach(). */
int message_show(struct peer *peer, const void *addr, size_t len, struct reach *out, struct fabric_window **window);

/*
 * limit.c
 */
/* Whether something may leave now; it takes what it takes, and what comes after it waits for that. */
bool message_limit_passes(struct peer_message *m);
void message_limit_take(struct peer_message *m, uint64_t bytes);
void message_limit_set(struct peer *peer, uint64_t rate);
void message_limits_turn(rdma_context *ctx);
/* Bytes that may leave at a time. */
uint64_t message_limit_quantum(const struct peer_message *m);

/*
 * inbox.c
 */
void inbox_init(struct peer_message *m);
struct stored *stored_new(struct peer_message *m, uint64_t length);
void stored_free(struct peer_message *m, struct stored *stored);
/* A short message came: into a receive that waits, else into the inbox. 0, -ENOMEM. */
int inbox_deliver(struct peer *peer, unsigned message_class, uint64_t stream, const void *data, size_t length);
/* A long one, likewise. */
int inbox_deliver_long(struct intake *intake);
/* A receive that had begun and got nothing waits again, before others; or fails, if it was abandoned. */
void inbox_wait_again(struct rdma_request *request);
/* A message is first again. False: no memory. */
bool inbox_put_back(struct intake *intake);
/* Drop the next message of a stream, if there is one. */
void inbox_drop(struct peer *peer, uint64_t stream);
/* The receives that wait fail. */
void inbox_clear(struct peer *peer);
void inbox_free(struct peer_message *m);

/*
 * calls.c
 */
/* Begin, for a call that ends it. NULL: rdma_fail() was called. */
struct rdma_request *message_begin_send(struct peer *peer, uint64_t stream, const void *data, size_t len);
struct rdma_request *message_begin_recv(struct peer *peer, uint64_t stream, void *data, size_t max_len);
/* A peer that the program connected or accepted, and that has not gone, by its place in ctx->peer; NULL: there is none
 * such. Of a group's mesh only collectives know. */
struct peer *peer_of_program(const rdma_context *ctx, uint32_t place);

/*
 * control.c
 */
int control_record(struct peer *peer, const void *data, size_t length);

/*
 * message.c, inbox.c, limit.c, request.c, register.c: what the layer's row has, and others of its files call.
 */
int message_record(struct peer *peer, const struct wire_record *record, const void *body);
void message_writable(struct peer *peer);
bool message_idle(struct peer *peer);
bool inbox_has_more(const struct peer *peer);
uint64_t messages_deadline(const rdma_context *ctx);
/* When no peer, schedule or window has a request: requests that the program did not end are void. */
void request_pool_end(rdma_context *ctx);
void register_end(rdma_context *ctx);

#endif
