/* peer.h: what programs of rdma_lib say to each other, and to the peer service. wire/wire.h includes it. */
#ifndef RDMAD_WIRE_PEER_H
#define RDMAD_WIRE_PEER_H

#include "wire/record.h"

/*
 * Peers: the programs of rdma_lib talk with each other by the first six, and meet at rdmad by the last three.
 */
/* clang-format off */
#define WIRE_OPS_PEER(X) \
	/* the first record of the side that connected. Reply: when it was accepted */ \
	X(PEER_HELLO, 80, peer_hello, "peer hello") \
	X(PEER_BYE, 81, peer_bye, "peer bye")             /* the session ends in peace */ \
	X(PEER_DATA, 82, peer_data, "peer data")          /* a short message */ \
	X(PEER_OFFER, 83, peer_offer, "peer offer")       /* a long one, to be read */ \
	X(PEER_TAKEN, 84, peer_taken, "peer taken")       /* it was read */ \
	X(PEER_CONFIRM, 85, peer_confirm, "peer confirm") /* what came, and what was received */ \
	/* to rdmad: struct wire_peer_join ... Reply: struct wire_peer_group ... */ \
	X(PEER_JOIN, 86, peer_join, "peer join") \
	/* to rdmad: cursor, 8 bytes. Reply: cursor, struct wire_peer_entry ... */ \
	X(PEER_LIST, 87, peer_list, "peer list") \
	X(PEER_LEAVE, 88, peer_leave, "peer leave")       /* to rdmad: it is no member any more. Reply: nothing */
/* clang-format on */

/*
 * The first record between two programs of rdma_lib, and its reply. The side that connected chose session and secret,
 * by which it alone comes back to the session on another connection. A reply with another status than WIRE_OK has words
 * for people, and nothing follows it; one with WIRE_OK has no secret.
 *
 * Simultaneous connect. A server that is itself connecting answers WIRE_PEER_WAITS with a random token in place of the
 * secret. The side with the lower program number then sends WIRE_PEER_CROSSES with the token of the connection to keep.
 */
#define WIRE_PEER_VERSION 2u
#define WIRE_PEER_SECRET 16
#define WIRE_PEER_CLASSES 3u
#define WIRE_PEER_RESUME 1u /* flags: the session is there already */
#define WIRE_PEER_WAITS 2u  /* of a reply: not accepted yet */
#define WIRE_PEER_CROSSES 4u
struct wire_peer_hello {
	uint16_t version; /* WIRE_PEER_VERSION; the same place in every version */
	uint16_t flags;
	uint32_t reconnect_ms; /* its sender keeps the session so long without a connection; 0: not at all */
	uint64_t session;
	uint8_t secret[WIRE_PEER_SECRET];
	uint64_t group;                   /* what the other one expects it by, or 0 */
	uint64_t room;                    /* bytes of short messages that may wait at its sender */
	uint64_t next[WIRE_PEER_CLASSES]; /* the first number of each class that its sender has not got */
	uint64_t program;                 /* a number of its sender, by chance, the same on all of its connections */
};
_Static_assert(sizeof(struct wire_peer_hello) == 80, "wire layout");

/*
 * Windows of peers: what they are, and what is asked about them, in control messages. `id` is the owner's number for
 * one window and one peer; it is not given out again.
 */
#define WIRE_WINDOW_READ 1u
#define WIRE_WINDOW_WRITE 2u
#define WIRE_WINDOW_ATOMIC 4u
#define WIRE_WINDOW_RIGHTS 7u
#define WIRE_WINDOW_BY_DEVICE 1u  /* flags of a share: a device carries out its atomic operations */
#define WIRE_WINDOW_NO_DEVICE 1u  /* flags of an ask: that cannot be, on the asker's side */
#define WIRE_WINDOW_NOTICES 1024u /* that an owner keeps of one share */
#define WIRE_WINDOW_ATOMICS 256u  /* of one share that may wait for their answers */
#define WIRE_WINDOW_SHARES 4096u  /* of one peer that another may have open or on offer */
struct wire_window_share {
	uint64_t id, addr, size;
	uint32_t rights, flags;
};
_Static_assert(sizeof(struct wire_window_share) == 32, "wire layout");

struct wire_window_ask {
	uint64_t id, epoch; /* of the asker's connections */
	uint32_t flags, reserved;
};
_Static_assert(sizeof(struct wire_window_ask) == 24, "wire layout");

struct wire_window_key {
	uint64_t id, epoch;   /* as asked */
	uint32_t rkey, error; /* 0, or an errno value: there is no key */
};
_Static_assert(sizeof(struct wire_window_key) == 24, "wire layout");

/* Of close, closed, switch, switched. */
struct wire_window_id {
	uint64_t id;
};
_Static_assert(sizeof(struct wire_window_id) == 8, "wire layout");

enum wire_window_operation { WIRE_WINDOW_FETCH_ADD = 1, WIRE_WINDOW_COMPARE_SWAP };
struct wire_window_atomic {
	uint64_t id, number, offset, operand, swap;
	uint32_t operation, reserved;
};
_Static_assert(sizeof(struct wire_window_atomic) == 48, "wire layout");

struct wire_window_answer {
	uint64_t number, before;
	uint32_t error, reserved; /* 0, or an errno value: nothing was done */
};
_Static_assert(sizeof(struct wire_window_answer) == 24, "wire layout");

/* A notice's number; of noticed how many of them were taken since the last. */
struct wire_window_notice {
	uint64_t id, value;
};
_Static_assert(sizeof(struct wire_window_notice) == 16, "wire layout");

/*
 * The peer service: where programs meet. What a member says of itself, rdmad tells the others of its group. A
 * connection is one member at most, and its end is the member's. The connect request has in `count`
 * WIRE_PEER_COUNT(name), so that one worker has them all.
 */
#define WIRE_PEER_NAME_MAX 200u
#define WIRE_PEER_ADDRESSES_MAX 512u /* bytes: URLs by which a member is reached, separated by blanks */
#define WIRE_PEER_MEMBERS_MAX 4096u  /* of a group */
#define WIRE_PEER_ANY_RANK UINT32_MAX
#define WIRE_PEER_COUNT(name, len) ((uint32_t)hash_bytes(name, len))

/* Behind it the name and the addresses. */
struct wire_peer_join {
	uint64_t token;    /* which the others say when they connect to this member */
	uint64_t patience; /* microseconds that it waits for the others; 0: as long as rdmad lets it */
	uint32_t size;     /* of the group */
	uint32_t rank;     /* that it wants, or WIRE_PEER_ANY_RANK */
	uint32_t name_len;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_peer_join) == 32, "wire layout");

/* A reply to JOIN, of one or more, each with members of consecutive ranks; first + count is size in the last. Behind it
 * struct wire_peer_member and its addresses, padded to 8, of each. */
struct wire_peer_group {
	uint32_t number; /* of the group: not 0, and no other group of this rdmad has it */
	uint32_t size;
	uint32_t rank; /* of the member that joined */
	uint32_t first, count;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_peer_group) == 24, "wire layout");

/* Record's flag of the first of them: behind struct wire_peer_group is a sealed secret of the group, whose members all
 * have a key. The ticket of it, with the serial number 0, is what members prove to each other. Their connect requests
 * have the group's number in `count`. */
#define WIRE_PEER_TICKET 32u

struct wire_peer_member {
	uint64_t token; /* in a reply to LIST 0 */
	uint32_t rank;  /* in a reply to LIST WIRE_PEER_ANY_RANK, where it gets one when the group is complete */
	uint32_t addresses_len;
};
_Static_assert(sizeof(struct wire_peer_member) == 16, "wire layout");

/* An entry of a reply to LIST. Behind it the name, padded to 8, and `count` members as above. A group that goes on in
 * the next reply has an entry in each, the later ones with WIRE_PEER_FURTHER. */
#define WIRE_PEER_FURTHER 1u
struct wire_peer_entry {
	uint32_t number; /* 0: it is not complete yet */
	uint32_t size;
	uint32_t here; /* how many members there are */
	uint32_t count;
	uint32_t name_len;
	uint32_t flags;
};
_Static_assert(sizeof(struct wire_peer_entry) == 24, "wire layout");

/*
 * Messages between peers. Each is of one of three classes and has a number in it, counted from 0: `id` is its lower 32
 * bits, and the lower two bits of the flags are the class. What a side may send is limited for each of three uses
 * (streams 0, 1 and others) by `room`: the sum of WIRE_PEER_COST() of all that it ever sent there. At first it is
 * WIRE_PEER_ROOM.
 */
#define WIRE_PEER_CLASS 3u /* flags: which class */
#define WIRE_PEER_AGAIN 4u /* of an offer: it was made on an earlier connection, and its key is another now */
#define WIRE_PEER_MORE 8u  /* of an offer: only `ready` is news */
#define WIRE_PEER_BACK 16u /* of an offer: it is withdrawn; of PEER_TAKEN: it was given up unread */
#define WIRE_PEER_ASKS 32u /* of PEER_CONFIRM: confirm what you have got by now */
#define WIRE_PEER_USES 3u
#define WIRE_PEER_ROOM (64u * 1024)
#define WIRE_PEER_COST(length) (((uint64_t)(length) + 63 + !(length)) & ~(uint64_t)63) /* an offer's length is 0 here */

struct wire_peer_data {
	uint64_t stream; /* then the message */
};
_Static_assert(sizeof(struct wire_peer_data) == 8, "wire layout");

struct wire_peer_offer {
	uint64_t stream, length, addr;
	uint64_t ready; /* bytes of it that may be read now */
	uint32_t rkey, reserved;
};
_Static_assert(sizeof(struct wire_peer_offer) == 40, "wire layout");

struct wire_peer_confirm {
	uint64_t next[WIRE_PEER_CLASSES]; /* what the sender of this expects next of each class */
	uint64_t room[WIRE_PEER_USES];
};
_Static_assert(sizeof(struct wire_peer_confirm) == 48, "wire layout");

/* The head of each message of stream 1, which the library sends to itself. Behind it a body of the kind. */
enum wire_control_kind {
	WIRE_CONTROL_WINDOW_SHARE = 1, /* peer/windows/window.h says which side sends which */
	WIRE_CONTROL_WINDOW_ASK,
	WIRE_CONTROL_WINDOW_KEY,
	WIRE_CONTROL_WINDOW_CLOSE,
	WIRE_CONTROL_WINDOW_CLOSED,
	WIRE_CONTROL_WINDOW_ATOMIC,
	WIRE_CONTROL_WINDOW_ANSWER,
	WIRE_CONTROL_WINDOW_NOTICE,
	WIRE_CONTROL_WINDOW_NOTICED,
	WIRE_CONTROL_WINDOW_SWITCH,
	WIRE_CONTROL_WINDOW_SWITCHED,
	WIRE_CONTROL_GROUP_ADDRESS, /* struct wire_group_... below */
	WIRE_CONTROL_GROUP_TABLE,
	WIRE_CONTROL_GROUP_READY,
	WIRE_CONTROL_GROUP_LOST,
	WIRE_CONTROL_GROUP_SHRINK,
	WIRE_CONTROL_GROUP_ABORT,
	WIRE_CONTROLS
};
struct wire_peer_control {
	uint32_t kind, reserved;
};
_Static_assert(sizeof(struct wire_peer_control) == 8, "wire layout");

/*
 * rdma_sequential_alltoall(), stream 2: a caller sends this and its string; the server answers, when it has all,
 * by this and the result; or by an error and words.
 */
#define WIRE_PEER_ANY_ROUND UINT32_MAX
struct wire_peer_exchange {
	uint32_t round;   /* counted by the caller; the answer has the same, or ANY if what came was not looked at */
	uint32_t error;   /* errno value */
	uint32_t members; /* of an answer */
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_peer_exchange) == 16, "wire layout");

/*
 * Groups of peers: what members tell each other, in control messages. Each begins with the group's number.
 */

/* GROUP_ADDRESS from a server: be `rank` of a group of `size`. */
struct wire_group_invitation {
	uint32_t number;
	uint32_t size, rank;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_group_invitation) == 16, "wire layout");

/* GROUP_ADDRESS, a client's answer. Behind it its addresses. */
struct wire_group_answer {
	uint32_t number;
	uint32_t addresses_len;
	uint64_t token;
};
_Static_assert(sizeof(struct wire_group_answer) == 16, "wire layout");

/* GROUP_TABLE: behind it struct wire_peer_member and its addresses, padded to 8, of `count` members from `first` on. */
struct wire_group_table {
	uint32_t number;
	uint32_t first, count;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_group_table) == 16, "wire layout");

/* GROUP_READY: to rank 0: this member is connected to all; from rank 0: all are. With an error: the group comes to
 * nothing, and words behind it say why. */
struct wire_group_ready {
	uint32_t number;
	int32_t error; /* 0 or -errno */
};
_Static_assert(sizeof(struct wire_group_ready) == 8, "wire layout");

/* GROUP_LOST: a member is lost, or has left in peace; words behind it. */
struct wire_group_lost {
	uint32_t number;
	uint32_t rank;
	uint32_t left;     /* 1: in peace */
	uint32_t sequence; /* then: of the first collective in which it took no part */
};
_Static_assert(sizeof(struct wire_group_lost) == 16, "wire layout");

/* GROUP_SHRINK: see peer/groups/shrink.c. Behind it a bit for each rank, in bytes. */
enum wire_group_shrink_kind {
	WIRE_GROUP_SHRINK_REPORT = 1,
	WIRE_GROUP_SHRINK_PROPOSE,
	WIRE_GROUP_SHRINK_ACCEPT,
	WIRE_GROUP_SHRINK_DECIDE,
	WIRE_GROUP_SHRINK_EXCLUDE,
	WIRE_GROUP_SHRINK_WITHDRAW
};
#define WIRE_GROUP_SHRINK_BOUND 1u /* flags of a proposal: it may have been decided before */
struct wire_group_shrink {
	uint32_t number;
	uint32_t round;  /* how often the group was shrunk before */
	uint32_t kind;   /* enum wire_group_shrink_kind */
	uint32_t leader; /* the rank whose proposal it waits for */
	uint64_t ballot;
	uint32_t flags;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_group_shrink) == 32, "wire layout");

/* GROUP_ABORT: a collective has failed at this member, which is `rank`; words behind it say why. Members that are not
 * done with it fail, too. */
struct wire_group_abort {
	uint32_t number;
	uint32_t sequence; /* of the collective */
	uint32_t rank;
	int32_t error; /* -errno */
};
_Static_assert(sizeof(struct wire_group_abort) == 16, "wire layout");

#endif
