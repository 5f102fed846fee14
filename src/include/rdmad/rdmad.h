/*
 * rdmad.h: what all parts of librdmad share. See librdmad(3).
 *
 * Every function returns 0 (or a count) or a negative errno, and leaves a sentence for people in
 * rdmad_error(). A handle is used by one thread at a time; different handles are independent. This also
 * holds with progress_thread: that thread works for the library alone and runs no code of the program. All callbacks
 * run in the thread that calls the library.
 */
#ifndef RDMAD_RDMAD_H
#define RDMAD_RDMAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RDMAD_DEFAULT_PORT 7471
#define RDMAD_POLL_ALWAYS UINT64_MAX

/* How to connect and to wait. Zero it, then set what matters: 0 is the default of each field. */
struct rdmad_options {
	uint64_t connect_timeout_us; /* default 5,000,000 */
	uint64_t timeout_us;         /* of a blocking call; default 30,000,000 */
	uint64_t poll_us;            /* poll at most this long before sleeping, where it helps; default 200. There is no
	                                polling with one processor, or where processor time is limited.
	                                RDMAD_POLL_ALWAYS: never sleep */
	bool no_poll;                /* sleep at once: lowest processor use, higher latency */
	bool require_rdma;           /* fail rather than use another transport */
	bool progress_thread;        /* a thread of the library moves bytes while the program does something else. It
	                                runs from the first of the handles that share until the last one is closed */
	uint8_t traffic_class;   /* of the packets; IPv4 calls it type of service. The upper six bits are the DSCP */
	uint32_t credits;        /* messages in flight per direction; default 32 */
	uint32_t eager_limit;    /* kv: up to this, key plus value go in the message; larger ones by RDMA read and
	                                write. The default, and the most, is what the server grants: 4095 */
	const char *key_file;    /* with the key of this program, see rdmad-auth(7). NULL: RDMAD_KEY_FILE of the
	                          environment; or the user's or machine's file, for servers on other machines. A handle
	                          that shares another's queues has its key */
	bool require_encryption; /* fail rather than have bytes go in clear over TCP to another machine, or from it; it
	                            needs a key, or munge */
	bool munge;              /* in place of a key, MUNGE says to the server which user this is, see rdmad-auth(7) */
	const char *server_user; /* with munge: user, by name or number, that the server may be of. NULL: it must be of
	                            root, or of the same user as this program */
};

/* The key that a handle with these options (NULL: defaults) would prove to `server`, and have it prove. Nothing is
 * sent.
 * 0; -ENOENT: none; -EINVAL: the address is none, or the file is not one of a key; or another negative errno. */
struct rdmad_key_info {
	unsigned number;     /* 65534: it is none, but MUNGE */
	char name[32];       /* of the client; with MUNGE its user, "@1000" */
	char fingerprint[9]; /* by which rdmactl key list tells keys apart */
};
int rdmad_key_info(const char *server, const struct rdmad_options *options, struct rdmad_key_info *info);

/* Whether the bytes of a transport of this name, as the calls of the services tell it, are encrypted. Any thread. */
bool rdmad_transport_encrypted(const char *name);

/* Why the last call of this thread that failed did so; "" if none failed. Valid until the thread's next call. */
const char *rdmad_error(void);

/* Version of the library, for instance "0.1.0". */
const char *rdmad_version(void);

#ifdef __cplusplus
}
#endif

#endif
