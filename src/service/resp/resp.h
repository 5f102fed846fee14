/*
 * resp.h: what the files of the service for Redis's clients share. resp/resp.h has the protocol's bytes and the table
 * of commands, stream/stream.h the connections.
 *
 *   service.c     the service's row: settings, counters, what the process and a thread have
 *   client.c      a connection: bytes to commands, who may do what, replies on their way
 *   view.c        what a command sees of the store and changes in it, as one step
 *   multi.c       MULTI, EXEC, DISCARD, WATCH
 *   strings.c     commands on strings
 *   keys.c        commands on keys of any type, and on all keys
 *   connection.c  HELLO, AUTH, CLIENT and others about the connection
 *   server.c      COMMAND, INFO, CONFIG and others about the server
 *   pubsub.c      SUBSCRIBE, PUBLISH
 */
#ifndef RDMAD_SERVICE_RESP_H
#define RDMAD_SERVICE_RESP_H

#include "resp/resp.h"
#include "service/internal.h"
#include "service/kv/kv.h"
#include "stream/stream.h"

struct resp_client;

/* What the workers share. */
struct resp_shared {
	const struct resp_settings *settings;
	struct kv_shared *kv;
	struct store *store;
	char run_id[41];
	uint64_t started;      /* time_now() */
	_Atomic uint64_t last_id;
	pthread_mutex_t lock;  /* of what follows */
	struct list clients;   /* all, in the order in which they came */
};

struct resp_thread {
	struct service_part part;
	struct resp_shared *shared;
	struct store *store;
	struct resp_out out;   /* of the stream that is visited */
	uint64_t calls[RESP_IDS], failed[RESP_IDS], rejected[RESP_IDS]; /* read by others, for figures */
};

/* What a command sees: values as they are, behind what was written before it in the same step. */
struct resp_value {
	const char *at;   /* stays until the command has ended */
	size_t len;
	uint64_t version; /* 0: it was written in this step */
	uint64_t expires; /* time_now() scale; TIME_NEVER: never */
};

struct resp_put {
	uint64_t expires; /* TIME_NEVER: never */
	bool keep_expiry; /* that of the value that is there */
};

struct resp_client {
	struct resp_thread *thread;
	struct stream *stream;
	struct resp_out *out;  /* where replies go; of a script, elsewhere */
	struct resp_parser parser;
	struct list node;      /* in shared->clients */
	uint64_t id;
	bool three;            /* RESP3 */
	bool authenticated;    /* or it need not be */
	bool closing;          /* behind the reply of this command */
	char *name, *library, *library_version;
	const struct resp_command *command; /* the one under way or the last; a subcommand where it has such */
	enum { RESP_REPLY_ON, RESP_REPLY_OFF, RESP_REPLY_SKIP_NEXT, RESP_REPLY_SKIP } reply;
	struct resp_multi *multi;           /* NULL: neither MULTI nor WATCH were said */
	struct resp_view *view;             /* what is under way; see view.c */
	uint64_t tells;                     /* the last change that the replies of this visit tell of */
	void *step;                         /* of a command in steps, which answered -EAGAIN: what it has by then; walk.c */
	void (*step_end)(struct resp_client *c); /* frees it, where the command does not come again; NULL: there is none */
};

/*
 * Carries a command out; argv[0] is its name (and argv[1] that of a subcommand), the arity fits, and the client may do
 * it to its keys. 0: it was answered, by resp_...(c->out). -EAGAIN: later; whatever was written to `out` and the view is
 * taken back, and the same command comes again. Others: an error as of the store, answered by the caller of this.
 */
typedef int resp_serve_fn(struct resp_client *c, const struct resp_arg *argv, unsigned argc);

/* By enum resp_id; NULL: not in this build. Each file names its functions resp_do_<name>. */
extern resp_serve_fn *const resp_serve[RESP_IDS];

/* Errors that several commands have. */
int resp_syntax_error(struct resp_client *c);          /* "ERR syntax error"; returns 0, as all of these */
int resp_not_an_integer(struct resp_client *c);        /* "ERR value is not an integer or out of range" */
int resp_not_a_float(struct resp_client *c);           /* "ERR value is not a valid float" */
int resp_wrong_type(struct resp_client *c);            /* "WRONGTYPE Operation against a key holding the wrong kind of value" */
int resp_no_sub(struct resp_client *c, const struct resp_arg *argv); /* "ERR unknown subcommand 'X'. Try CLIENT HELP." */
int resp_bad_arity(struct resp_client *c, const char *name);
void resp_ok(struct resp_client *c);

/* Time. Redis's clients speak of milliseconds since 1970. */
uint64_t resp_now(const struct resp_client *c);        /* time_now() scale, of this turn */
int64_t resp_unix_ms(void);
uint64_t resp_expires_at(const struct resp_client *c, int64_t unix_ms); /* on the store's scale; at the least resp_now(): it has expired */
int64_t resp_unix_of(const struct resp_client *c, uint64_t expires);    /* of one that is not TIME_NEVER, in ms */

/*
 * view.c: the step of one command, of EXEC, of a script. Reads note the versions that they saw; writes are kept until
 * the end, where all of it is checked and applied at once (store_commit()). If others changed what was read, it is run
 * again. A key may be longer than the store takes: then it is not there, and a write is refused (-EINVAL).
 */
/* 1: there, *out. 0: there is no such key. -errno. */
int resp_view_get(struct resp_client *c, const struct resp_arg *key, struct resp_value *out);
/* The same without the bytes: at is NULL. */
int resp_view_stat(struct resp_client *c, const struct resp_arg *key, struct resp_value *out);
/* The key gets this value, at the end of the step. 0 or -errno: -EAGAIN: call again; -ENOMEM, -EFBIG. */
int resp_view_set(struct resp_client *c, const struct resp_arg *key, const void *value, size_t len,
		  const struct resp_put *put);
/* The same, whose `len` bytes the caller fills in before the command ends; NULL: *rc. */
char *resp_view_begin(struct resp_client *c, const struct resp_arg *key, size_t len, const struct resp_put *put, int *rc);
/* 1 deleted, 0 there is no such key, -errno. */
int resp_view_delete(struct resp_client *c, const struct resp_arg *key);
/* 1, 0 there is no such key, -errno. An `expires` that is past deletes it. */
int resp_view_expire(struct resp_client *c, const struct resp_arg *key, uint64_t expires);
/* Reply with a value: a long one leaves from where it is, without a copy. */
void resp_reply_value(struct resp_client *c, const struct resp_value *value);

#endif
