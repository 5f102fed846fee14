/*
 * messages.h: what the layers above have of messages: requests, sending and receiving, control messages. message.h is
 * for the files of messages.
 */
#ifndef RDMAD_PEER_MESSAGES_MESSAGES_H
#define RDMAD_PEER_MESSAGES_MESSAGES_H

#include "peer/peer.h"

/*
 * request.c
 */
/* From the context's pool, zeroed, with ctx and peer. NULL: no memory, rdma_fail() was called. Inside, all of them. */
struct rdma_request *request_new(rdma_context *ctx, struct peer *peer);
/* Frees a request of the program, or one whose done() was called. */
void request_free(struct rdma_request *request);
/* Ends a request that is in no list any more. status 0: `length` bytes. Calls done(), or ends the wait of a call. */
void request_complete(struct rdma_request *request, int status, size_t length);
/* With words; format NULL: none. */
void request_fail(struct rdma_request *request, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* For a call that waits: until `request` is complete or context_until(); frees it. Its length, or -1 (rdma_fail() was
 * called). */
int64_t request_finish(struct rdma_request *request);
/* The same for one of several of a call. */
int64_t request_finish_until(struct rdma_request *request, uint64_t until);
/* register.c. Whether the address space has them; else the error says so. */
bool memory_ends(const void *addr, size_t len);

/*
 * message.c, inbox.c. Inside. request->peer, stream, data and length are set; a send has its class, too. They complete
 * at once where they can. A peer that has gone fails them at once, a connection that is being made anew lets them wait.
 *
 * A send completes when `data` may be used again: up to PEER_EAGER_MAX at once or when there is room at the peer; a
 * longer one when the peer has read it. A receive: its length is the room for the message, and then what came;
 * -EMSGSIZE: the message is longer, which stays, and request->length is its length.
 */
void message_send(struct rdma_request *request);
void message_recv(struct rdma_request *request);
/* Post what waits; else it leaves with the next turn. */
void message_flush(struct peer *peer);
/* The length of the next message of a stream; -EAGAIN: none has come. */
int64_t inbox_probe(struct peer *peer, uint64_t stream);
/* A stream is not used any more: what comes on it is dropped. Only a group's. From `first` up to `last`. */
void inbox_forget(struct peer *peer, uint64_t first, uint64_t last);

/* For request.c: the time of a call is over whose request cannot be cancelled. Wait for it until the time that this
 * returns, then call it again. A long message that is sent is withdrawn, and complete after the second call; one that
 * is being received completes when it is here, or withdrawn. */
uint64_t message_abandon(struct rdma_request *request);
/* calls.c: peer_connected() after peer_look(). */
struct peer *peer_to_send(rdma_context *ctx, int index);

/*
 * control.c: short messages of the library, ordered, once; a layer's row has the kinds that it handles.
 */
#define PEER_CONTROL_MAX (PEER_EAGER_MAX - 8) /* bytes of a body */

/* `body` is copied. -ENOMEM; -ECONNRESET: the peer has gone. */
int control_send(struct peer *peer, enum wire_control_kind kind, const void *body, size_t length);

#endif
