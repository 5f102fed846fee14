/* internal.h: what the files of stream share. */
#ifndef RDMAD_STREAM_INTERNAL_H
#define RDMAD_STREAM_INTERNAL_H

#include "stream/stream.h"

#include <netinet/in.h>

#define STREAM_HOLDS 32u  /* marks that a stream tells apart; beyond them the last one rises */
#define STREAM_SPARES 16u /* buffers of STREAM_READ bytes that a group keeps */

struct stream_hold {
	uint64_t at;   /* bytes written before it */
	uint64_t mark; /* which has to be released first */
};

struct stream {
	void *context; /* first: see stream_context() */
	struct stream_group *group;
	const struct stream_ops *ops;
	int fd;
	uint64_t id;
	const char *service;
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
	uint64_t look;        /* when to look at those that are stuck or idle */
	unsigned empty, skip; /* epoll_wait() found nothing so many times; turns until the next one */
	uint64_t visit;       /* when the visit began, by attr.clock */
	bool writing;         /* streams may have become ready since the last turn */
	struct list streams, ready, timed, quiet, dying;
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

/* visit.c */
void stream_visit(struct stream *stream);

#endif
