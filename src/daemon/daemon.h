/*
 * daemon: the process. main builds in order and takes down in reverse; what runs in between are the
 * main thread (signals, listeners, control socket, the services' clock) and N workers, each with its
 * own loop, completion queues and connections. Threads talk by rings and eventfds only.
 *
 * Functions that can end the start answer 0 or an exit status of <sysexits.h>: EX_CONFIG for
 * what the configuration says, EX_UNAVAILABLE for RDMA that was required and is missing, EX_NOPERM,
 * EX_CANTCREAT, EX_OSERR for what the system refuses. They have logged the cause by then.
 */
#ifndef RDMAD_DAEMON_H
#define RDMAD_DAEMON_H

#include "service/service.h"

#include <pthread.h>
#include <time.h>

struct daemon;

/*
 * loop.c: the one door to libevent. A loop belongs to one thread; only loop_wake() may be called by
 * others.
 */
enum { LOOP_READ = 1, LOOP_WRITE = 2 };

struct loop;
struct loop_watch; /* a descriptor, a signal or a timer */

typedef void (*loop_fn)(void *arg);

int loop_create(struct loop **out);
struct event_base *loop_base(struct loop *loop); /* for the other doors to parts of libevent */
void loop_destroy(struct loop *loop);            /* its watches first; NULL is fine */

/* NULL: no memory or a descriptor that cannot be watched; logged. A watch may be removed in its own
 * callback. */
struct loop_watch *loop_add_fd(struct loop *loop, int fd, unsigned events, loop_fn fn, void *arg);
struct loop_watch *loop_add_signal(struct loop *loop, int signal, loop_fn fn, void *arg);
struct loop_watch *loop_add_timer(struct loop *loop, loop_fn fn, void *arg); /* not set yet */
void loop_remove(struct loop_watch *watch);                                  /* NULL is fine */

/* Watch a descriptor for other events from now on. */
void loop_change_fd(struct loop_watch *watch, unsigned events);
/* Fire once after `ns`; TIME_NEVER: not at all. */
void loop_set_timer(struct loop_watch *watch, uint64_t ns);

/* Until loop_break(). */
void loop_run(struct loop *loop);
void loop_break(struct loop *loop);
/* What is ready; waits for it up to `ns` (0: not at all, TIME_NEVER: without limit). */
void loop_once(struct loop *loop, uint64_t ns);

/* Make the loop's thread return from waiting and call the function that loop_on_wake() named. */
void loop_wake(struct loop *loop);
void loop_on_wake(struct loop *loop, loop_fn fn, void *arg);

/*
 * config.c: the one door to libconfig. Tables, the daemon's and one of each service, have every setting; the parser,
 * the check, the sample and the reload come from them.
 */
enum access_local { ACCESS_EVERYONE, ACCESS_USER }; /* users of this machine that need no key */

struct config {
	struct setting_list listen; /* each passes fabric_address_parse() */
	uint64_t port;
	char *unix_socket;
	uint64_t unix_mode;
	uint64_t transports; /* a bit for each of fabric_transports; see config_allows() */
	bool require_rdma;
	char *device; /* NULL: every one */
	uint64_t workers;
	uint64_t poll;     /* ns, or TIME_NEVER: never sleep */
	uint64_t services; /* bit 1 << enum wire_service */
	uint64_t max_connections, max_per_source, message_size, message_max, credits, shared_receives;
	uint64_t handshake_timeout, keepalive, stall_timeout, ack_timeout, drain_timeout;
	uint64_t turn, own_buffers, parked_memory, first_request_timeout;
	uint64_t traffic_class;
	char *control_socket;
	uint64_t control_mode;
	uint64_t log_level;
	uint64_t log_format; /* enum log_format */
	char *log_target;
	char *pid_file;                 /* NULL: none */
	char *auth_keys, *auth_clients; /* files; NULL: the usual ones, if they are there */
	uint64_t auth_local;            /* enum access_local */
	uint64_t auth_encrypt;          /* enum conn_encrypt */
	bool auth_munge;
	bool insecure; /* other machines may come without keys */
	uint64_t slow; /* ns from which on a request is logged as slow; 0: none is */
	bool slow_keys;
	struct setting_list metrics_listen; /* each passes address_parse(), without a scheme */
	void *service[WIRE_SERVICES];       /* values of the service's own settings; NULL: it has none */
};

/* What the command line says in place of the file. */
struct config_overrides {
	struct setting_list listen; /* empty: the file's */
	const char *log_level;      /* NULL: the file's */
	bool insecure;
};

/* Read `path` (NULL: the defaults alone), check every key of it, fill the defaults. On failure each
 * error was logged with file and line, EX_CONFIG comes back and *out is untouched. */
int config_load(const char *path, const struct config_overrides *overrides, struct config **out);
void config_free(struct config *config);

/* Take over from `fresh` what may change at run time, telling `changed` of each; settings that
 * differ and may not are told with restart true. `fresh` keeps what was replaced and is still to be
 * freed. */
void config_merge(struct config *config, struct config *fresh,
		  void (*changed)(void *arg, const char *path, bool restart), void *arg);

static inline bool config_allows(const struct config *config, const struct fabric_transport *transport)
{
	return config->transports >> (transport - fabric_transports) & 1;
}

/* May connections come to go by shared memory? */
static inline bool config_shares_memory(const struct config *config)
{
	for (unsigned i = 0; i < FABRIC_TRANSPORTS; i++)
		if (fabric_transports[i].inside && config_allows(config, &fabric_transports[i]))
			return true;
	return false;
}

/* How many connections one source may have. */
static inline uint64_t config_max_per_source(const struct config *config)
{
	return quota_most(config->max_per_source, config->max_connections);
}

/* The annotated sample, every setting with its default. */
void config_print_sample(FILE *out);
/* A file that says the same, every setting with its value; in comments what is in effect, and what is not set. */
void config_print(const struct config *config, FILE *out);

/* The listen address `text` with the configured port where it names none. */
int config_listen_address(const struct config *config, const char *text, struct address *out);

/*
 * options.c: the command line.
 */
struct options {
	const char *config; /* NULL: the system's if it is there, else the defaults */
	bool test, offline, print, daemonize;
	struct config_overrides overrides;
};

/* -1: go on. Else the exit status: help or version were printed, or an option was wrong. */
int options_parse(int argc, char **argv, struct options *out);

/*
 * logging.c: where messages go. Any thread logs; the rest is for the main thread.
 */

/* Until this is called they go to stderr. "stderr", "syslog" or "file:PATH"; called again it
 * changes the target or opens the file anew (after it was rotated). 0 or EX_CANTCREAT, and the old
 * target stays. A line is text, or an object of JSON; the service manager's journal has fields beside it, or the
 * priority before it. */
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };
int logging_open(const char *target, enum log_level level, enum log_format format);
void logging_close(void); /* what was logged is written by then, unless its reader takes nothing */
/* From here on the calling thread's errors and warnings are also added to `lines`, one on a line; NULL: no more. */
void logging_gather(char *lines, size_t size);
/* Whether errors and warnings also go to stderr, as they do until the start has succeeded. */
void logging_echo(bool on);
/* Start the log's thread: until the close no other waits for the log's reader, and floods are held back. 0 or
 * EX_OSERR. */
int logging_start(void);

/*
 * process.c: what a process owes its system.
 */

/* As process 1, of a container: the daemon becomes its child. The kernel hands process 1 every orphan, which it has to
 * reap, and a signal that it has no handler for does not reach it. Before any thread and any call of verbs; returns in
 * the daemon, 0 or EX_OSERR, and at once in any other process. */
int process_leave_1(void);
/* Fork into the background; before any thread and any call of verbs. In the child it returns 0; the
 * parent stays until process_ready() or the child's end and exits with its status. */
int process_daemonize(void);
/* The start succeeded: releases the parent, if there is one, and the terminal. */
void process_ready(void);

/* Locked for the life of the process, so that two daemons do not share it. */
int process_pid_file_create(const char *path);
void process_pid_file_remove(const char *path);

/* Raises the soft limit of descriptors to the hard one and lowers *connections to what fits beside what the workers and
 * the services have. 0, or EX_OSERR where hardly any would. */
int process_limits(uint64_t *connections, unsigned workers, unsigned services);
/* Warns when memory that cannot be swapped out may be less than `bytes`. */
void process_check_memlock(uint64_t bytes);

/* Make the directory of `path`, if it is not there. */
int process_make_parent(const char *path);
/* Find out whether that would succeed, and make nothing. */
int process_check_parent(const char *path);
unsigned process_count_fds(void);

/*
 * notify.c: the service manager's readiness protocol. Nothing happens where $NOTIFY_SOCKET is not
 * set.
 */
void notify_send(const char *state); /* "READY=1" ... */
/* From start to stop it hears, as often as it wants to, that this thread and each worker turn. The log names a worker
 * that does not, with or without a service manager. 0 or EX_OSERR. */
int notify_watchdog_start(struct daemon *daemon);
void notify_watchdog_stop(struct daemon *daemon);

/*
 * inherit.c: sockets that the service manager made, and listens on while the daemon does not run ($LISTEN_FDS). The
 * listener of a configured address takes the socket of that address. Main thread.
 */
#define INHERITED_MAX 64 /* each needs a setting that names it */

int inherited_open(struct daemon *daemon); /* before any fork. 0 */
/* One that listens at this address, without waiting: the caller's to close, and its file the service manager's to
 * remove. -1: there is none. */
int inherited_take(struct daemon *daemon, const struct sockaddr *sa);
int inherited_settle(struct daemon *daemon); /* logs and closes what no listener took. 0 */
void inherited_close(struct daemon *daemon);

/*
 * fabrics.c: the providers that are open. Main thread; `domain` any.
 */
struct daemon_fabric {
	struct fabric *fabric;
	struct fabric_domain *domain;
	struct fabric_queue *queue; /* of the main thread: listening */
	struct loop_watch *watch[FABRIC_MAX_FDS];
	unsigned watches;
	struct loop_watch *more; /* a timer: requests wait that were not looked at in this turn */
	atomic_uint devices;     /* that can be used, by the thread that looks for them */
	char spoilt[256];        /* why the workers cannot have queues of it; mostly empty */
};

#define FABRICS_MAX FABRIC_TRANSPORTS /* each has a provider, of its own or with others */

struct missing {
	const struct fabric_transport *transport;
	char address[128], reason[256]; /* address "": all of the transport */
	bool waits;                     /* it was listened on, or is for this transport alone: until a device has it */
};

#define MISSING_MAX (FABRIC_TRANSPORTS * (SETTING_LIST_MAX + 1))

/* Open what the configuration asks for. A transport whose device is not there has none yet, with the reason under
 * `missing`, or EX_UNAVAILABLE where it is required; then nothing is open. */
int fabrics_open(struct daemon *daemon);
/* The same for a check: what could be opened stays open, also where something is required and missing. For a check a
 * transport is not open without its device. */
int fabrics_try(struct daemon *daemon);
void fabrics_close(struct daemon *daemon);
/* Fabrics that are spoilt and have a device go on the list of the missing, and the others serve. 0, or EX_UNAVAILABLE
 * where such a transport is required, EX_OSERR where it is not for want of a device. The workers do not run. */
int fabrics_give_up(struct daemon *daemon);
bool fabrics_spoilt(const struct daemon *daemon);
/* The one that has this transport; NULL: it is not open. */
struct daemon_fabric *fabrics_find(struct daemon *daemon, const struct fabric_transport *transport);
/* The fabric whose bytes a device moves; NULL: there is none. */
const struct daemon_fabric *fabrics_device(const struct daemon *daemon);
/* The number of devices that move the bytes of transports. Memory that is registered with them cannot be swapped
 * out. */
unsigned fabrics_devices(const struct daemon *daemon);
/* Why it is not there. */
const char *fabrics_reason(const struct daemon *daemon, const struct fabric_transport *transport);
/* IPv4 addresses of the RDMA devices, quoted and separated by commas, to be named in advice.
 * Returns buf. */
char *fabrics_rdma_addresses(char *buf, size_t size);
/* What is missing already stays as it is. */
void fabrics_add_missing(struct daemon *daemon, const struct fabric_transport *transport, const char *address,
			 const char *reason, bool waits);
void fabrics_drop_missing(struct daemon *daemon, const struct fabric_transport *transport, const char *address);
/* Now and then: a transport is not missing any more that has got its first device. */
void fabrics_tick(struct daemon *daemon);
/* From start to stop a thread looks once a second which devices were taken away and which have come: fabric_renew().
 * What can last there is the registration of all memory. 0 or EX_OSERR. */
int fabrics_renew_start(struct daemon *daemon);
void fabrics_renew_stop(struct daemon *daemon);

/*
 * facts.c: what this machine tells clients of itself, by the operation FACTS of the service ping.
 */
struct daemon_facts {
	pthread_mutex_t lock;
	size_t length;
	char ports[WIRE_FACTS_MAX];
	_Atomic uint64_t registered; /* bytes that devices pin at most */
};

/* Asks the devices anew: the main thread before workers start, then the thread that looks for devices. */
void facts_look(struct daemon *daemon);
/* For struct service_host. */
size_t facts_tell(void *daemon, char out[static WIRE_FACTS_MAX]);

/*
 * worker.c: a thread with connections.
 */
struct worker;
struct worker_message;

enum worker_verb {
	WORKER_CONNECTION, /* take a request; consumed, no answer */
	WORKER_STREAM,     /* the same of a stream */
	WORKER_REPORT,     /* fill in `report` */
};

/* What a report lists. */
enum status_list {
	STATUS_NO_LIST,
	STATUS_LIST, /* the connections, or the connection of an id */
	STATUS_END,  /* the connection of an id, which is ended */
	STATUS_HOT,  /* no connection, but hot keys, which are looked for no more */
};

/* What all workers are told, behind what each was sent before. Nothing can be lost of it. */
enum worker_word {
	WORKER_SETTINGS = 1, /* take over the new polling time */
	WORKER_LEAVE = 2,    /* tell clients to leave */
	WORKER_DRAIN = 4,    /* close each connection as soon as nothing of it is in flight */
	WORKER_ACCESS = 8,   /* look at the key and the rights of each again */
	WORKER_HOT = 16,     /* look for hot keys */
};

#define WORKERS_MAX 256

/* What a worker says of itself. */
struct worker_report {
	unsigned worker;
	uint64_t busy;        /* ns of turns in which something was done */
	struct buckets turns; /* and of each of them */
	struct conn_group_stats conn;
	struct stream_stats stream;
	struct service_counts service;
	uint64_t kind[FABRIC_TRANSPORTS][WIRE_SERVICES]; /* connections */
	struct conn_info *list;                          /* NULL unless asked for */
	size_t count, size;
	uint64_t only;                 /* not 0: the list has the connection of this id alone */
	bool end;                      /* which is ended */
	struct service_hot_table *hot; /* of a worker, where asked for */
};

/* To a worker, and back to the main thread if it has `done`. */
struct worker_message {
	enum worker_verb verb;
	/* In the main thread; frees the message. NULL: the worker frees it. */
	void (*done)(struct worker_message *message);
	void *arg;
	union {
		struct {
			const struct service *service;
			unsigned group;
			struct fabric_request *fabric_request; /* NULL: a stream */
			struct wire_request request;
			int fd;                          /* of a stream */
			struct auth_admission admission; /* the worker's to end */
			struct quota_share *source;      /* the worker's to give back */
			uint64_t places;                 /* connections that there may be for this source */
			bool instead;                    /* there is no place but that of one which gives way */
		} connection;
		struct {
			enum status_list list;
			struct worker_report report;
		} report;
	};
};

unsigned workers_count(const struct config *config);
/* How long a thread that waits may poll: the setting, or 0 where that takes what work needs. */
uint64_t workers_polling(const struct daemon *daemon);
int workers_start(struct daemon *daemon);
/* Ends the threads and then what connections remain. */
void workers_stop(struct daemon *daemon);

/* False: the worker's inbox is full and the message is still the caller's. */
bool worker_send(struct worker *worker, struct worker_message *message);
void workers_tell(struct daemon *daemon, enum worker_word word);
/* Whether each worker has begun a turn at `since` or later; the log names a worker that has not. It wakes all for the
 * next look, so `since` is when the last call was, as its `now`; 0: there was none. */
bool workers_turned(struct daemon *daemon, uint64_t since, uint64_t now);
/* Connections, and requests on the way to a worker. */
uint64_t workers_load(const struct daemon *daemon);
struct worker *workers_least(const struct daemon *daemon);
/* That of a service's number: service.h, worker(). */
struct worker *workers_of_number(const struct daemon *daemon, unsigned number);
/* The one whose connection has waited longest without asking for anything, for first_request_timeout at least. NULL:
 * none has such a one. */
struct worker *workers_oldest(const struct daemon *daemon, uint64_t now);
/* Call done() of what the workers have answered. */
void workers_collect(struct daemon *daemon);

/*
 * access.c: keys and rights. Main thread.
 */
/* By the configuration: 0 with one reference, or -errno, logged. */
int access_load(const struct config *config, struct auth_table **out);
/* May clients of other machines come? Only with keys, or where the configuration says that none are needed; else false,
 * logged. `address`: where they would. */
bool access_may_expose(const struct config *config, const struct auth_table *access, const char *address);
int access_open(struct daemon *daemon); /* 0 or an exit status */
void access_close(struct daemon *daemon);
/* Takes the reference. Connections whose keys are gone end. */
void access_replace(struct daemon *daemon, struct auth_table *fresh);

/*
 * listener.c: requests come in, are looked at and handed to a worker. Main thread.
 */
struct listener {
	struct fabric_listener *handle; /* NULL: its device was removed or has not come yet, and is waited for */
	struct daemon *daemon;
	unsigned fabric;
	const struct fabric_transport *transport;
	struct sockaddr_storage at;
	socklen_t len;
	char address[256];
	bool exposed;                 /* other machines reach it */
	bool told;                    /* has listened before */
	bool only;                    /* nothing but this transport was asked for there */
	bool native;                  /* takes requests of rdmad's own clients */
	const struct service *stream; /* for requests of Valkey's clients, which have no magic; NULL: it takes none */
};

/* 0 or an exit status; then nothing listens. */
int listeners_open(struct daemon *daemon);
void listeners_progress(void *fabric); /* of a struct daemon_fabric */
/* Now and then: those listen whose device has come or is back, and has their address. */
void listeners_tick(struct daemon *daemon);
void listeners_close(struct daemon *daemon);
unsigned listeners_port(const struct daemon *daemon);       /* the first that has one; 0: none */
const char *listeners_exposed(const struct daemon *daemon); /* the first that other machines reach; NULL: none */
bool listen_is_exposed(const struct sockaddr *sa);
/* Take clients of Valkey's protocol over RDMA, too, or by the transport that the address names; `check`: look whether
 * that could be, as far as can be told without listening. 0 or an exit status. */
int listeners_open_rdma(struct daemon *daemon, const struct service *service, const struct address *address,
			bool check);
/* What is asked before a client is handed to a worker, in this order. How many connections there may be before this
 * source is refused; whether it may come at all; and one connection more of it. */
uint64_t listeners_places(const struct daemon *daemon, const struct fabric_source *of);
enum wire_reason listeners_admit(struct daemon *daemon, unsigned service, uint64_t places, uint64_t *detail);
enum wire_reason listeners_count(struct daemon *daemon, const struct fabric_source *of, uint64_t *detail,
				 struct quota_share **source);
int listeners_none(void); /* the exit status of a daemon without any, which is logged */
const char *listen_advice(const struct sockaddr *sa, int error); /* "" or what to do, behind the error's own text */

/*
 * streams.c: the same for services whose connections are streams. Main thread.
 */
int listen_tcp(const struct sockaddr *sa, socklen_t len, int *out); /* 0 or -errno */
/* Call `listen` for each address of "host[:port]", for clients of `what`: 0, -errno, or an exit status, logged. The
 * machine may lack one address of a name, or a whole family. 0 or an exit status, logged. */
int listen_each(const char *text, uint64_t port, const char *what,
		int (*listen)(void *arg, const struct address_socket *at), void *arg);

struct stream_listener {
	int fd;
	struct daemon *daemon;
	struct loop_watch *watch;
	const struct service *service;
	struct local_file file; /* of a UNIX socket */
	char address[256];
	const char *transport;
	uint16_t port;
	bool exposed;
	bool paused; /* until the next tick */
};

#define STREAM_LISTENERS 32

/* The service of this number, if it is offered and has a door, which is filled in; else NULL. */
const struct service *streams_door(const struct daemon *daemon, unsigned id, struct service_door *door);
/* By RDMA, at an address of its door; `check`: as listeners_open_rdma(). 0 or an exit status. */
int streams_listen_rdma(struct daemon *daemon, const struct service *service, const struct service_door *door,
			const char *text, bool check);
/* 0 or an exit status; then none of them listens. */
int streams_open(struct daemon *daemon);
void streams_close(struct daemon *daemon);
void streams_tick(struct daemon *daemon); /* now and then */
/* Closes the descriptor, behind a line that says why, or rejects the request, where there is one. Any thread. */
void streams_refuse(const struct service *service, int fd, struct fabric_request *request, enum wire_reason reason);
/* A client asks by RDMA: hands it to a worker, or refuses it. */
void streams_requested(struct daemon *daemon, const struct service *service, struct fabric_request *request);
/* Find out what the workers' streams have for such clients: daemon->rdma. */
void streams_find_rdma(struct daemon *daemon);

/*
 * check.c: whether this machine lets the configuration start, as far as can be found out beside a daemon that runs with
 * it. Says all that is wrong; 0 or the exit status of the first.
 */
int check_machine(struct daemon *daemon);

/*
 * control.c: the control socket. rdmad(8) describes its commands.
 */
struct control;

int control_open(struct daemon *daemon);
void control_close(struct daemon *daemon);

/*
 * mover.c: one session, in which the keys of some slots are copied to the node that gets these. A thread of its own
 * speaks with that node, by a handle of librdmad. Main thread.
 */
struct mover_attr {
	const char *address;               /* the native one of the other node */
	const char *cluster, *node, *boot; /* of this node */
	const char *key_file;              /* of the key by which the other one admits this node; NULL: none */
	uint64_t epoch;                    /* of the table that this node goes by */
	uint64_t patience;                 /* for so long the other one is asked to take it */
	uint8_t slots[CLUSTER_SLOT_BYTES];
	const struct service *service; /* whose keys they are */
	void *shared;                  /* the service's */
	void (*changed)(void *arg);    /* main thread: the state is another one */
	void *arg;
};

/* In this order; from each of them it may end. */
enum mover_state {
	MOVER_BEGINNING, /* the other node is asked */
	MOVER_COPYING,
	MOVER_NEAR,     /* all keys were sent, and few changes are to be: seal, and mover_finish() */
	MOVER_COMPLETE, /* the other node has all, and has answered so */
	MOVER_ENDED     /* it came to nothing: mover_close(), and begin anew */
};

struct mover_progress {
	uint64_t keys, bytes; /* that were sent, and answered */
	uint64_t behind;      /* changes that are to be sent, about */
};

struct mover;

/* Takes a copy of what `attr` points at. There is one at a time. 0, or -errno, logged. */
int mover_open(struct daemon *daemon, const struct mover_attr *attr, struct mover **out);
enum mover_state mover_state(const struct mover *mover);
const char *mover_reason(const struct mover *mover); /* of the end; "" */
void mover_get_progress(const struct mover *mover, struct mover_progress *out);
/* The slots are sealed, and this is settled: sends what is left, and that it is complete for the table of this
 * epoch. */
void mover_finish(struct mover *mover, uint64_t epoch);
/* The table is there: has the other node look at it, without waiting. Behind MOVER_COMPLETE. */
void mover_done(struct mover *mover);
/* Ends the thread, and waits for one message at most. Sealed slots stay so. NULL is fine. */
void mover_close(struct mover *mover);
void mover_turn(struct daemon *daemon); /* when the loop is woken: calls changed() */

/*
 * engine.c: what the nodes of a cluster agree by, between etcd and the service that has the keys. Main thread.
 */
struct engine;

/* 0 or an exit status. Nothing where none is configured. What is served begins with the loop. */
int engine_open(struct daemon *daemon);
/* Says that this node is out, in a second at most. The workers have ended. */
void engine_close(struct daemon *daemon);

/* Slots that went to other nodes with their values. */
struct engine_moves {
	uint64_t begun, done, failed; /* sessions, with 1024 slots at most */
	uint64_t slots, keys, bytes;  /* of moves that are done */
	uint64_t sealed, sealed_most; /* ns for which the slots were not served: of the last one, and at most */
};

/* The slots that go now. */
struct engine_moving {
	const char *phase, *target, *reason; /* words; why the last one failed: "" */
	unsigned slots, wished;              /* of this session; and all that are to go yet */
	struct mover_progress progress;
};

struct engine_report {
	const char *state, *endpoint, *reason; /* a word; why it serves nothing, or has no answer: "" */
	uint64_t asked, lost;                  /* transactions, and those of them without an answer */
	uint64_t heard;                        /* ns since the last answer; TIME_NEVER: there was none */
	uint64_t left;                         /* ns that it may serve for without another one; TIME_NEVER: for ever */
	uint64_t epoch;                        /* of the table that is served by */
	unsigned out;                          /* nodes of the table that are */
	struct engine_moves moves;
	struct engine_moving moving;
};

bool engine_report(const struct daemon *daemon, struct engine_report *out); /* false: there is none */
/* A turn at once, which asks the engine. Nothing where there is none. */
void engine_look(struct daemon *daemon);

/*
 * status.c: the state of the daemon as JSON, from what the workers report.
 */
struct status {
	struct daemon *daemon;
	unsigned pending;
	struct worker_report total;
	uint64_t busy[WORKERS_MAX];
	struct service_hot_sum *hot;                    /* NULL: not asked for, or no memory */
	void (*done)(void *arg, struct status *status); /* status is freed on return */
	void *arg;
};

void status_add_conn(struct worker_report *into, const struct conn_group_stats *from);
/* Ask every worker; done() comes in the main loop when all have answered. `only`: see struct worker_report. -ENOMEM. */
int status_gather(struct daemon *daemon, enum status_list list, uint64_t only,
		  void (*done)(void *arg, struct status *status), void *arg);
struct json_t;
struct json_t *status_json(const struct status *status);
struct json_t *status_connections_json(const struct status *status);
struct json_t *status_memory_json(const struct status *status);
struct json_t *status_resources_json(const struct status *status);
struct json_t *status_hot_json(const struct status *status);
struct json_t *status_slow_json(struct daemon *daemon); /* NULL: no memory */
void status_log(void *arg, struct status *status);

/*
 * metrics/: the same for a monitoring system; metrics/metrics.h has what its files share.
 */
#define METRICS_PORT 7472

struct metrics_server;
enum metrics_state { METRICS_LOADING, METRICS_READY, METRICS_DRAINING };

/* The answer to rdmactl metrics. NULL: no memory. */
struct json_t *metrics_json(const struct status *status);
/* By HTTP, where the configuration has an address for it: 0 or an exit status. */
int metrics_open(struct daemon *daemon);
void metrics_close(struct daemon *daemon);
void metrics_turn(struct daemon *daemon); /* of the main thread: again and again, and when it is woken */
void metrics_tell(struct daemon *daemon, enum metrics_state state);
const char *metrics_address(const struct daemon *daemon, unsigned i); /* NULL: there are no more */
/* A line for each metric: name, type, unit, labels and help, apart by tabs. */
void metrics_print_table(FILE *out);

/*
 * daemon.c: what all of it shares, and what signals do. Main thread; the workers read `shared`.
 */
struct daemon {
	uintptr_t main; /* thread_self() of the main thread */
	struct options options;
	char *config_path; /* of options.config, where that is not absolute */
	struct config *config;
	struct auth_table *access;
	struct loop *loop;
	struct loop_watch *signal[8];
	struct loop_watch *tick; /* the clock of services and listeners */
	struct loop_watch *drain_timer;
	struct {
		struct loop_watch *timer;
		uint64_t interval; /* ns, between looks */
		uint64_t looked;   /* when the last was */
		bool asked;        /* the service manager wants to hear of it */
	} watchdog;
	struct {
		int fd[INHERITED_MAX];
		unsigned count;
	} inherited; /* until a listener takes them */
	struct daemon_fabric fabric[FABRICS_MAX];
	struct {
		pthread_t thread;
		int stop; /* eventfd */
		bool runs;
	} renew;
	struct daemon_facts facts;
	unsigned fabrics, given_up; /* the latter behind the former, until the services have nothing of them any more */
	struct missing missing[MISSING_MAX];
	unsigned missings;
	struct listener listener[2 * FABRIC_TRANSPORTS * (SETTING_LIST_MAX + 1)];
	unsigned listeners;
	struct stream_listener stream[STREAM_LISTENERS];
	unsigned streams;
	struct service_shared shared;
	struct service_slow *slow;
	struct worker **worker;
	unsigned workers;
	struct conn_munge *munge;       /* asked by the workers' connections */
	struct stream_rdma_attr rdma;   /* of Valkey's clients; domain NULL: none come */
	struct memory_budget windows;   /* that they write into */
	struct memory_budget own;       /* of buffers that connections have of their own */
	uint64_t connections_asked;     /* as configured at the start, perhaps more than the descriptors allow */
	uint64_t connections_fit;       /* for what the workers' queues were made */
	struct quota *sources;          /* connections; the main thread takes */
	uint64_t refused[WIRE_REASONS]; /* before a worker saw them */
	struct control *control;
	struct engine *engine;          /* NULL: there is none */
	struct mover *mover;            /* the same */
	struct metrics_server *metrics; /* NULL: not by HTTP */
	uint64_t started;
	time_t started_at, configured_at; /* by the system's clock: the start, and the last configuration that holds */
	bool reload_failed;               /* the last one */
	_Atomic bool look;                /* a service wants the engine to be asked */
	_Atomic int fatal;                /* errno for which the process is to end, from a service; 0: none */
	bool draining;                    /* no new connections */
	bool ending;                      /* and the end comes with the last one, or when drain_timeout has passed */
	bool detached;                    /* in the background, without stderr */
};

/* What begins with it is for the main thread only. */
static inline bool daemon_is_main(const struct daemon *daemon)
{
	return daemon->main == thread_self();
}

int daemon_configure(struct daemon *daemon); /* from daemon->options */
void daemon_unconfigure(struct daemon *daemon);
int daemon_process_start(struct daemon *daemon); /* background, limits, pid file */
void daemon_process_stop(struct daemon *daemon);
int daemon_loop_start(struct daemon *daemon);
void daemon_loop_stop(struct daemon *daemon);    /* with all signals */
int daemon_signals_start(struct daemon *daemon); /* that end the daemon */
int daemon_services_start(struct daemon *daemon);
void daemon_services_stop(struct daemon *daemon);
int daemon_ready(struct daemon *daemon);
bool daemon_serves(const struct daemon *daemon, enum wire_service service); /* by the configuration */

void daemon_drain(struct daemon *daemon); /* refuse new connections */
/* And let what is under way finish, then end loop_run(); asked again, at once. */
void daemon_end(struct daemon *daemon);
void daemon_drained(struct daemon *daemon); /* look whether there is nothing left to wait for */

/* What a reload did, each a list of lines, cut where it is too long. */
struct reloaded {
	char changed[1024]; /* settings that apply from now on */
	char restart[1024]; /* that only a restart applies */
	char reasons[2048]; /* why nothing was changed */
};

/* All or nothing. 0; -EINVAL: the file is wrong; -ESHUTDOWN: the daemon is ending. */
int daemon_reload(struct daemon *daemon, struct reloaded *told);

/* The exit status for a negative errno; 0 for 0. */
int daemon_exit_status(int error);

#endif
