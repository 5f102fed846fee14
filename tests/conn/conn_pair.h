/*
 * conn_pair.h: two groups in one process over the soft provider, turned by one thread. Time is
 * a number that the test sets; the real clock only ends a test that hangs.
 */
#ifndef TESTS_CONN_PAIR_H
#define TESTS_CONN_PAIR_H

#include <check.h>
#include <stdlib.h>

#include "conn/conn.h"

struct side {
	struct fabric_domain *domain;
	struct conn_group *group;
};

/* How the server answers connect requests; set before conn_pair_connect. */
struct conn_pair_listener {
	struct fabric_queue *queue;
	struct fabric_listener *listener;
	struct sockaddr_storage address;
	socklen_t address_len;
	/* Takes over a request that was decoded. */
	void (*take)(void *arg, struct fabric_request *request, const struct wire_request *wire,
		     enum wire_reason reason);
	void *arg;
};

struct conn_pair {
	struct fabric *fabric;
	struct side server, client;
	struct conn_pair_listener listener;
	int (*work)(void); /* more that a turn does, at first; how much there was. NULL: nothing */
	uint64_t now;
	bool server_stops, client_stops; /* that side is not turned */
	char dir[64];
};

/* Pairs of TCP share memory, as those of a UNIX socket do. */
extern bool conn_pair_memory;

void conn_pair_open(struct conn_pair *pair, bool unix_socket, const struct conn_group_attr *server,
		    const struct conn_group_attr *client);
void conn_pair_close(struct conn_pair *pair);

/* The client's side begins to connect to the other. */
int conn_pair_connect(struct conn_pair *pair, const struct wire_request *request, const struct conn_attr *attr,
		      const struct conn_ops *ops, void *context, struct conn **out);

/* One turn of each side. Completions and events there were. */
int conn_pair_turn(struct conn_pair *pair);

/* Both sides have nothing to do any more: fails when they never come to rest. */
void conn_pair_rest(struct conn_pair *pair);

/* The real time by which a test must have got on. */
uint64_t conn_pair_patience(void);

#define TURN_UNTIL(turn, condition)                                                                                    \
	do {                                                                                                           \
		uint64_t until_ = conn_pair_patience();                                                                \
		while (!(condition)) {                                                                                 \
			turn;                                                                                          \
			ck_assert_msg(time_now() < until_, "waited in vain for " #condition);                          \
		}                                                                                                      \
	} while (0)
#define PAIR_UNTIL(pair, condition) TURN_UNTIL(conn_pair_turn(pair), condition)

/* A peer without manners: an endpoint whose bytes the test chooses. It reads what comes. */
struct evil {
	struct fabric_domain *domain;
	struct fabric_queue *queue;
	struct fabric_endpoint *endpoint;
	struct fabric_region *region;
	bool established, rejected, disconnected;
	unsigned received;
	struct wire_accept accept;
	struct wire_reject reject;
	_Alignas(64) uint8_t memory[64][8192];
	_Alignas(64) uint8_t out[1u << 20];
};

struct evil *evil_new(struct conn_pair *pair);
/* Connect with any private data; evil_turn until established or rejected. */
void evil_connect(struct conn_pair *pair, struct evil *evil, const void *data, size_t len);
void evil_turn(struct evil *evil);
/* Send raw bytes as one message. */
void evil_send(struct conn_pair *pair, struct evil *evil, const void *data, size_t len);
void evil_free(struct evil *evil);

#endif
