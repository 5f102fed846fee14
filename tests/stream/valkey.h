/*
 * valkey.h: a client of Valkey's protocol over RDMA, made from its description: it registers one buffer for what comes, and writes
 * into the one that the server registered, to its last byte. By any provider of the fabric. It can also do what a client must not.
 */
#ifndef RDMAD_TESTS_STREAM_VALKEY_H
#define RDMAD_TESTS_STREAM_VALKEY_H

#include "fabric/fabric.h"

#define VALKEY_RECEIVES 256u
#define VALKEY_STAGE 65536u
#define VALKEY_MESSAGE 32u

enum { VALKEY_GET_FEATURES, VALKEY_SET_FEATURES, VALKEY_KEEPALIVE, VALKEY_REGISTER };

struct valkey {
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_endpoint *endpoint;
	struct fabric_region *region; /* of all memory: the buffer for what comes, the stage, receives */
	char *memory;
	uint32_t len;        /* of the buffer */
	uint32_t came, used; /* of it */
	bool silent;         /* registers nothing */
	bool owes;           /* registers as soon as the stage has room */
	bool established, over;
	uint64_t addr; /* the server's, with key and length */
	uint32_t key, window, filled;
	unsigned registers, features, keepalives; /* messages that came */
	unsigned select;                          /* of the last about features */
	unsigned under_way;                       /* requests */
	uint32_t staged;                          /* of the stage, until none is under way */
	bool failed;                              /* a request did */
	enum fabric_status status;                /* how, the first time */
};

/* Begin to connect. `data`: private data of the request. */
void valkey_connect(struct valkey *v, const char *provider, const struct sockaddr *sa, socklen_t sa_len, uint32_t len,
		    const void *data, size_t data_len);
/* Take what came; how much. */
int valkey_turn(struct valkey *v);
/* The descriptors become readable when something comes; false: turn at once. */
bool valkey_arm(struct valkey *v);
/* As many bytes as the server's window and the stage take. */
size_t valkey_write(struct valkey *v, const void *bytes, size_t len);
/* Bytes that came, at most `len`. */
size_t valkey_read(struct valkey *v, void *to, size_t len);
void valkey_message(struct valkey *v, unsigned opcode, unsigned select, uint64_t features);
void valkey_register(struct valkey *v);
void valkey_close(struct valkey *v);

/*
 * What it must not do.
 */
/* Write `len` zeros at an address of the server's, and say that `imm` came. */
void valkey_write_at(struct valkey *v, uint64_t addr, uint32_t key, uint32_t len, uint32_t imm);
/* False: the stage has no room. */
bool valkey_send(struct valkey *v, const void *bytes, uint32_t len);
bool valkey_register_as(struct valkey *v, uint64_t addr, uint32_t len, uint32_t key);

#endif
