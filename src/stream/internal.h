/* internal.h: what the files of stream share. */
#ifndef RDMAD_STREAM_INTERNAL_H
#define RDMAD_STREAM_INTERNAL_H

#include "stream/stream.h"

#include <netinet/in.h>
#include <sys/uio.h>

#define STREAM_HOLDS 32u  /* marks that a stream tells apart; beyond them the last one rises */
#define STREAM_SPARES 16u /* buffers of STREAM_READ bytes that a group keeps */

struct stream_hold {
	uint64_t at;   /* bytes written before it */
	uint64_t mark; /* which has to be released first */
};

/* How the bytes of a stream come and go. */
struct stream_transport {
	/* Bytes that came, at most `len`; 0: no more will; -EAGAIN; -errno: broken. */
	ssize_t (*receive)(struct stream *stream, void *to, size_t len);
	/* How many bytes were taken; -EAGAIN; -errno. Fewer than there are: the other end takes no more for now. Those
	 * of iov[i] stay as they are until release() where bit i of `pinned` is set. */
	ssize_t (*send)(struct stream *stream, const struct iovec *iov, unsigned count, uint64_t pinned);
	/* A pinned piece was taken whole: release it when nothing reads it any more. */
	void (*release)(struct stream *stream, const struct stream_piece *piece);
	void (*visited)(struct stream *stream); /* at the end of a visit */
	bool (*settled)(struct stream *stream); /* what was taken has left. False: the stream will be visited again */
	void (*look)(struct stream *stream);    /* about once a second */
	const char *(*name)(const struct stream *stream);                   /* "tcp" */
	void (*info)(const struct stream *stream, struct stream_info *out); /* the addresses */
	void (*end)(struct stream *stream);
};

struct rdma_stream;
struct stream_rdma;

struct stream {
	void *context; /* first: see stream_context() */
	struct stream_group *group;
	const struct stream_ops *ops;
	const struct stream_transport *transport;
	struct rdma_stream *rdma; /* of RDMA */
	int fd;                   /* of a socket, else -1 */
	uint64_t id;
	const char *service;
	struct stream_kind *kind; /* that it is counted as */
	struct sockaddr_in6
		from;      /* of IP: the kernel forgets it when the other end resets; AF_UNSPEC: of a UNIX socket */
	struct list node;  /* in group->streams */
	struct list ready; /* in group->ready, while it is to be visited */
	struct list timed; /* in group->timed, while it is to be visited at `until` */
	struct list quiet; /* in group->quiet, until it has said something */
	uint64_t opened, active, until;
	struct quota_share *share;
	struct auth_admission admission;

	bool plain;    /* recv() is safe */
	bool readable; /* as far as is known */
	bool ended;    /* the other end sends no more: read until that shows */
	bool writable;
	bool visited; /* right now */
	bool again;   /* bytes() is to be called with what is there already */
	bool closing;
	int error;
	char reason[120];

	struct {
		char *at; /* what came and was not used; NULL: nothing */
		size_t len, room;
		char *to; /* stream_receive(); NULL: dropped, or nothing was asked for */
		size_t left;
		uint64_t bytes;
	} in;
	struct {
		struct stream_piece *piece; /* a ring of `room`, a power of two */
		unsigned first, count, room;
		size_t waiting;         /* bytes of all */
		uint64_t written, left; /* bytes, ever */
		uint64_t stuck;         /* since when nothing of what may leave was taken; 0: it is */
		struct stream_hold hold[STREAM_HOLDS];
		unsigned holds;
		uint64_t released;
		uint64_t answers, answered; /* of requests, ever; and when nothing waited last */
	} out;
};

struct stream_group {
	struct stream_attr attr;
	int epoll;
	uint64_t now;
	uint64_t look;        /* when to look at streams that are stuck or idle */
	unsigned empty, skip; /* epoll_wait() found nothing so many times; turns until the next one */
	uint64_t visit;       /* when the visit began, by attr.clock */
	unsigned sockets;
	struct stream_rdma *rdma; /* NULL: no clients come by RDMA */
	struct list streams, ready, timed, quiet;
	struct stream_stats stats;
	char *spare[STREAM_SPARES];
	unsigned spares;
	char scratch[STREAM_READ];
};

/* out.c */
/* Leave, as far as it may and the other end takes it. 0, or -errno of a broken connection. */
int stream_flush(struct stream *stream);
void stream_drop_pieces(struct stream *stream);
bool stream_may_leave(const struct stream *stream); /* anything that waits for the other end alone */

/* stream.c */
void stream_make_ready(struct stream *stream);
void stream_wait_until(struct stream *stream, uint64_t when);
/* Buffers of what came: STREAM_READ bytes or more. */
char *stream_buffer_take(struct stream_group *group);
void stream_buffer_give(struct stream_group *group, char *buffer, size_t room);

/* stream.c: close it for an error of the system. */
void stream_broken(struct stream *stream, int error);

/* visit.c */
void stream_visit(struct stream *stream);

/* socket.c: consumes open->fd in each case. */
int stream_socket_open(struct stream *stream, const struct stream_open *open);
void stream_socket_events(struct stream *stream, uint32_t events); /* of epoll */

/* rdma.c */
int stream_rdma_create(struct stream_group *group);
void stream_rdma_destroy(struct stream_group *group);
int stream_rdma_poll(struct stream_group *group); /* how much came */
bool stream_rdma_arm(struct stream_group *group);
bool stream_rdma_any(const struct stream_group *group); /* there are streams of it */
/* Consumes open->request in each case. */
int stream_rdma_open(struct stream *stream, const struct stream_open *open);

#endif
