/*
 * ping.h: round trips to rdmad and back. See rdmad_ping(3).
 */
#ifndef RDMAD_PING_H
#define RDMAD_PING_H

#include <rdmad/rdmad.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rdmad_ping;

#define RDMAD_PING_SIZE_MAX ((1u << 20) - 24u)

struct rdmad_ping_options {
	struct rdmad_options common;
	uint32_t size;  /* bytes of each message, 0 to RDMAD_PING_SIZE_MAX; the server takes no other */
	uint32_t count; /* round trips that will come; the server's agent ends after them. 0: until close */
	uint32_t depth; /* most in flight; default 1, at most common.credits - 1 */
	bool verify;    /* changing data, compared when it comes back */
};

/* Connect; the server makes an agent for this client alone. Errors of opening a handle: see librdmad(3). */
int rdmad_ping_open(const char *server, const struct rdmad_ping_options *options, struct rdmad_ping **ping);

/* Send one ping. -EAGAIN: depth pings are out, receive first. */
int rdmad_ping_send(struct rdmad_ping *ping);

/* Wait for the answer to the oldest ping. *rtt_ns: its round trip in nanoseconds. -EBADMSG: these are not the bytes
 * that were sent; -ETIMEDOUT; -ENOTCONN. */
int rdmad_ping_receive(struct rdmad_ping *ping, uint64_t *rtt_ns);

#define RDMAD_PING_FACTS_MAX 4096u

/* Ask what the server tells of its machine: lines of text, see rdmad-protocol(7), with a 0 behind them, which
 * RDMAD_PING_FACTS_MAX + 1 bytes always hold. -EOPNOTSUPP: the server is of an earlier version; -EACCES: this client
 * has no right to it; -EMSGSIZE: they do not fit; -ETIMEDOUT; -ENOTCONN. */
int rdmad_ping_facts(struct rdmad_ping *ping, char *text, size_t size);

/* "rdma", "tcp", "tls" (TCP, encrypted), "unix" or "shm": shared memory. */
const char *rdmad_ping_transport(const struct rdmad_ping *ping);

void rdmad_ping_close(struct rdmad_ping *ping);

#ifdef __cplusplus
}
#endif

#endif
