/*
 * client.h: what rdmad asks of a handle of kv beside the installed calls, to move slots to another server. Each call
 * that returns 0 calls back once; -EAGAIN: kv_progress first, as of kv_submit_set.
 */
#ifndef RDMAD_CLIENT_H
#define RDMAD_CLIENT_H

#include <rdmad/kv.h>

#include <stdint.h>

/* An item as it is, with its attributes. A value beyond the message stays until the callback. */
struct client_item {
	const void *key, *value;
	size_t key_len, value_len;
	uint64_t ttl; /* us; 0: it does not expire */
	uint32_t flags;
	uint8_t type; /* as of wire_item() */
};

int client_put_item(void *kv_handle, const struct client_item *item, kv_callback done, void *arg);

/* A request of a session, of enum wire_move_kind: a struct wire_move or wire_move_begin. With -EAGAIN the callback has
 * a text for a value. -EOPNOTSUPP: the server is an older one. */
int client_move(void *kv_handle, uint32_t kind, const void *body, size_t length, kv_callback done, void *arg);

#endif
