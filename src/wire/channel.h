/* channel.h: requests and replies of the channel service, and the records of a channel. wire/wire.h includes it. */
#ifndef RDMAD_WIRE_CHANNEL_H
#define RDMAD_WIRE_CHANNEL_H

#include "wire/record.h"

/*
 * A channel is two rings of bytes, whose indices count bytes from the beginning: head, put; tail, got. The listener, a
 * program or rdmad, is asked by CHANNEL_OPEN, once on a connection, and answers when the channel is accepted. The
 * records behind it go both ways and have no reply. The end that puts never goes more than the capacity beyond the tail
 * that it was told. rdmad takes the last three between the two connections that it has joined, as they are. The name
 * `echo` joins one with itself. What it may do in addition is asked on another connection: LISTEN, and what follows
 * from it. The connect request of all of them has in `count` WIRE_CHANNEL_COUNT(name), so that one worker has what
 * belongs together.
 */
/* clang-format off */
#define WIRE_OPS_CHANNEL(X) \
	X(CHANNEL_OPEN, 64, channel_open, "channel open")       /* struct wire_channel_open, name. Reply: see there */ \
	/* struct wire_channel_data, perhaps bytes: the last ones put */ \
	X(CHANNEL_DATA, 65, channel_data, "channel data") \
	X(CHANNEL_TAIL, 66, channel_tail, "channel tail")       /* tail, 8 bytes: got until here */ \
	/* tail, 8 bytes: send CHANNEL_TAIL when it is reached */ \
	X(CHANNEL_WANT, 67, channel_want, "channel want") \
	/* struct wire_channel_listen, name, addresses. Reply: nothing */ \
	X(CHANNEL_LISTEN, 68, channel_listen, "channel listen") \
	/* to a listener: token, 8 bytes: a client waits; CHANNEL_OPEN it */ \
	X(CHANNEL_INVITE, 69, channel_invite, "channel invite") \
	/* cursor, 8 bytes. Reply: cursor, struct wire_channel_entry, name ... */ \
	X(CHANNEL_LIST, 70, channel_list, "channel list") \
	/* of a listener: it gives its name back. Reply: nothing; it is free */ \
	X(CHANNEL_LEAVE, 71, channel_leave, "channel leave")
/* clang-format on */

#define WIRE_CHANNEL_NAME_MAX 200u
#define WIRE_CHANNEL_SIZE_MIN 64u
#define WIRE_CHANNEL_SIZE_MAX (1ull << 32)
#define WIRE_CHANNEL_ADDRESSES_MAX 1024u /* bytes: URLs without the name, separated by blanks */
#define WIRE_CHANNEL_COUNT(name, len) ((uint32_t)hash_bytes(name, len))

#define WIRE_CHANNEL_RELAY 1u /* flags of an open: rdmad is to join the two rather than tell of addresses */

/* With the reply WIRE_OK: the same of the other end, without a name. WIRE_MOVED: the body is URLs, separated by
 * blanks; open one of these, or ask again with WIRE_CHANNEL_RELAY. */
struct wire_channel_open {
	uint64_t capacity; /* bytes of each ring: both ends have the same */
	uint64_t addr;     /* of the sender's ring for what the other one puts; it is there twice, */
	uint64_t ring;     /* the second time this many bytes behind the first, so that no write is in two parts */
	uint32_t rkey;     /* addr 0: may not be written to, bytes come with CHANNEL_DATA */
	uint32_t flags;
	uint64_t token; /* of an invitation, else 0 */
};
_Static_assert(sizeof(struct wire_channel_open) == 40, "wire layout");

/* Record's flag of a reply WIRE_MOVED: behind the URLs are a serial number, 4 bytes, and a sealed ticket. It is the key
 * for those addresses, AUTH_ID_TICKET; the connect request has the serial number in `size`. */
#define WIRE_CHANNEL_TICKET 32u
#define WIRE_CHANNEL_TICKET_SIZE (4u + WIRE_SEALED)

/* Record's flag of CHANNEL_DATA: its sender puts no more, and closes in peace when it has the same from the other one,
* which answers so at once. */
#define WIRE_CHANNEL_LAST 16u

/* Behind it `arg` bytes that end at `head`; none: they were written to the ring, or there are none. */
struct wire_channel_data {
	uint64_t head; /* the sender put until here */
	uint64_t tail; /* and got until here */
};
_Static_assert(sizeof(struct wire_channel_data) == 16, "wire layout");

#define WIRE_CHANNEL_ISSUES 1u /* behind the addresses is a sealed secret, of which rdmad makes tickets */
struct wire_channel_listen {
	uint64_t capacity;
	uint32_t name_len;
	uint32_t flags; /* WIRE_CHANNEL_ISSUES */
};
_Static_assert(sizeof(struct wire_channel_listen) == 16, "wire layout");

/* Behind it the name, padded to 8. */
struct wire_channel_entry {
	uint64_t capacity;
	uint64_t clients; /* joined by this rdmad, now */
	uint32_t name_len;
	uint32_t reserved;
};
_Static_assert(sizeof(struct wire_channel_entry) == 24, "wire layout");

#endif
