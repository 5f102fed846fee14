/*
 * service: what a request means. Each service is one row, struct service: what it needs of the process, of a worker
 * thread and of a connection, its settings and its counters are members of that row, and the daemon knows nothing else
 * of it. A member that is NULL or 0 stands for nothing.
 *
 * Three things belong to a service, and each has its one owner:
 * - of the process: what open() made, from the service's settings. The main thread opens and closes it, before the
 *   workers start and after they ended; workers share it, so what changes in it is atomic or has a lock.
 * - of a worker thread: a struct service_part, which the service's own struct begins with. It belongs to that worker:
 *   the main thread makes it before the worker runs and frees it after the worker ended; in between no other touches
 *   it.
 * - of a connection: its agent, which belongs to the worker of the connection.
 */
#ifndef RDMAD_SERVICE_H
#define RDMAD_SERVICE_H

#include "base/setting.h"
#include "cluster/cluster.h"
#include "conn/conn.h"
#include "stream/stream.h"

struct service;
struct service_shared;
struct service_slow;
struct service_hot;

#define SERVICE_COUNTERS 32 /* most of one service */

/* What is told apart by its duration: kinds of requests, and beside them large values on their way. */
enum service_class {
	SERVICE_READ,
	SERVICE_WRITE,
	SERVICE_SCAN,
	SERVICE_COUNTED, /* of those above, what was answered in a turn is counted, and took as long as that */
	SERVICE_JOB = SERVICE_COUNTED,
	SERVICE_REQUESTS,
	SERVICE_IN = SERVICE_REQUESTS, /* from the request for it until it is in its place, */
	SERVICE_OUT,                   /* and from there until the client has it */
	SERVICE_CLASSES
};

#define SERVICE_TIMES(class) (1u << SERVICE_##class)

/* What the daemon has that a service may use when it opens; it outlives what the service makes of it. */
struct service_host {
	struct fabric_domain *const *domain; /* one of each fabric that is open, until open() returns */
	unsigned domains;
	const struct service_shared *shared; /* what services with a lower number made */
	uint64_t connections;                /* that the daemon takes */
	uint64_t poll; /* how long a thread that waits may poll before it sleeps; TIME_NEVER: for ever */
	/* What this machine tells clients of itself, of WIRE_FACTS_MAX bytes at most: how many. Any thread, as long as
	 * the service is open. NULL: it tells nothing. */
	size_t (*facts)(void *arg, char out[static WIRE_FACTS_MAX]);
	/* NULL: not wanted. */
	void (*busy)(void *arg, const char *with); /* opening takes long, and gets on */
	void (*fatal)(void *arg,
		      int error); /* from any thread: the process is to end, with the exit status of that errno */
	void (*soon)(void *arg);  /* main thread: the services' tick() is called at once */
	void (*look)(void *arg);  /* any thread: what the nodes of a cluster agree by is asked at once */
	void *arg;
};

/* Takes what a service says of itself: a number or a text under a name that ends in its unit. */
struct service_report {
	void (*number)(struct service_report *report, const char *name, uint64_t number);
	void (*text)(struct service_report *report, const char *name, const char *text);
	/* What follows goes into an object of that name, until end(). Not one within another. */
	void (*begin)(struct service_report *report, const char *name);
	void (*end)(struct service_report *report);
};

/* What the workers share. */
struct service_shared {
	uint64_t open;           /* bit 1 << enum wire_service */
	void *of[WIRE_SERVICES]; /* what open() of that service made */
};

/* What one service has in one worker thread. */
struct service_part {
	const struct service *service;
	struct service_thread *thread;
	void *shared;       /* what service->open() made */
	unsigned active;    /* what wants turns: service_part_join(), service_part_leave() */
	_Atomic bool asked; /* for one: service_part_ask() */
	/* ns from which on a request is slow: service_slow_add(); TIME_NEVER where hot keys alone are looked for. 0: no
	 * request is timed, and of none is told */
	uint64_t slow;
	uint64_t count[SERVICE_COUNTERS]; /* by the place of its name in service->counters */

	/* How long requests took: service_thread_time(). */
	uint64_t answered[SERVICE_COUNTED]; /* so far; service_part_answered(), where the service has no answered() */
	uint64_t timed[SERVICE_COUNTED];    /* that are in `took` */
	uint64_t late[SERVICE_COUNTED];     /* that were answered since then, and have a time of their own */
	struct buckets took[SERVICE_CLASSES];
};

/* What one worker thread has of all services. */
struct service_thread {
	uint64_t now;       /* set by the worker before each turn of its groups */
	unsigned active;    /* of all parts */
	_Atomic bool asked; /* of one of them */
	/* Jobs that other processes or threads of this machine have for connections of this thread: meanwhile it polls
	 * for longer, because waking up twice costs more than most jobs, and yields. Services count up and down. */
	unsigned busy;
	uintptr_t owner;                          /* thread_self() of the worker while it runs, else 0 */
	struct service_slow *slow;                /* NULL: there is none */
	struct service_hot *hot;                  /* NULL: hot keys were never looked for */
	struct service_part *part[WIRE_SERVICES]; /* NULL: the service is not open */
	/* Of them those that count what they answer, to have it timed. */
	struct service_part *timed[WIRE_SERVICES];
	unsigned timed_count;
};

/* How a connection comes: the group that it is to be one of, and what the device that it uses can do. */
struct service_way {
	const struct conn_group *group;
	struct fabric_limits limits;
};

/* Where clients come whose connections are streams of bytes, by the settings. */
struct service_door {
	const struct setting_list *listen; /* each passes address_parse(), without a scheme */
	uint64_t port;                     /* of addresses that name none */
	const char *unix_socket;           /* NULL: none */
	uint64_t unix_mode;
	const struct setting_list *rdma; /* addresses of RDMA devices, as `listen`, for clients of Valkey's protocol */
	uint64_t rdma_window;            /* bytes of each of the two that such a client has */
	uint64_t rdma_memory;            /* registered for all of them, at most */
};

/* By what engine the nodes of a cluster agree, as configured. */
struct service_engine {
	const char *cluster, *node;
	const char *state; /* a file of this node's; NULL: none */
	const struct setting_list *endpoints;
	const char *user, *password_file; /* NULL: none */
	const char *key_file;             /* of the key by which others admit this node; NULL: none */
	uint64_t period, spread_after;
	bool lasting; /* serve on without it */
};

struct cluster_session;
struct service_source;

/* A key as it is now, for the node that gets its slot. */
struct service_item {
	const void *key; /* until next() */
	size_t key_len;
	bool there; /* else it is to be deleted */
	const void *value;
	size_t value_len;
	uint64_t ttl; /* us; 0: it does not expire */
	uint32_t flags;
	uint8_t type;
	void *hold; /* until release() */
};

/*
 * What is sent of the keys of some slots: all of them, and each again that was changed. State-based: what is sent of a
 * key is what it is when it is read. One thread at a time.
 */
struct service_moves {
	int (*open)(void *shared, const uint8_t *slots, struct service_source **out); /* 0 or -errno */
	/* 1: an item, to be sent behind all items before it; its value is the caller's until release(). 0: there is
	 * none now. -ESTALE, -ENOMEM: changes were missed, or all keys were deleted: begin anew, with another
	 * session. */
	int (*next)(struct service_source *source, struct service_item *out);
	/* Take note of what changed, while there is no room to send it: often, as the store keeps few changes. 0, or
	 * -errno as next(). */
	int (*hear)(struct service_source *source);
	void (*release)(struct service_source *source, struct service_item *item);
	/* All keys that there were came once. */
	bool (*walked)(const struct service_source *source);
	/* The highest version that was given to any key. */
	uint64_t (*version)(const struct service_source *source);
	/* A change that was made so far comes before the mark. How many that do are not looked at yet, about; 0: all of
	 * them are. */
	uint64_t (*mark)(const struct service_source *source);
	uint64_t (*behind)(const struct service_source *source, uint64_t mark);
	void (*close)(struct service_source *source); /* all items were released. NULL is fine */
};

/* What the engine says to a service. Main thread. */
struct service_cluster {
	/* Serve the slots of the table that have a bit. NULL: of none. 0; or -errno, logged, and nothing changed. */
	int (*change)(void *shared, const struct cluster_table *table, const uint8_t *slots);
	/* Whether no worker goes by what was before. */
	bool (*settled)(const void *shared);
	/* Until then, by time_boot(). */
	void (*until)(void *shared, uint64_t until);
	/* The highest epoch that was ever served, as far as is known. */
	uint64_t (*served)(const void *shared);
	/* Whether it answers for all of these slots, or has sealed them. Not before keys of before are deleted. */
	bool (*serves)(const void *shared, const uint8_t *slots);
	/* Requests for these slots are held up, for a second at most, and then answered as for slots that wait; NULL:
	 * none is sealed any more. settled() says when no worker goes by what was before: moves->next() has all changes
	 * then. 0 or -ENOMEM, logged. */
	int (*seal)(void *shared, const uint8_t *slots);
	/* At each turn of the engine's: decides on the session of another node that asks to be let in, if one does. A
	 * session is let in where `allowed` says so; else it is told why, and asks again. A complete one ends where
	 * `abandoned` says so. */
	void (*receive)(void *shared,
			bool (*allowed)(void *arg, const struct cluster_session *session, char *why, size_t size),
			bool (*abandoned)(void *arg, const struct cluster_session *session), void *arg);
	const struct service_moves *moves;
};

/* What a service counted, over one thread or several. */
struct service_counts {
	uint64_t of[WIRE_SERVICES][SERVICE_COUNTERS];
	struct buckets took[WIRE_SERVICES][SERVICE_CLASSES]; /* ns, by BUCKETS_REQUEST */
};

struct service {
	enum wire_service id;
	const char *help; /* one line, for rdmad --help */

	/* Its rows in the configuration; their names begin with the service's, or with that of a group that others have
	 * rows in, too. Values are kept by the daemon as long as the service is open, and do not change. */
	const struct setting_table *settings;

	/* Its counters by name, NULL-terminated; at most SERVICE_COUNTERS. rdmad(8) says what each means. */
	const char *const *counters;

	/* The process. Main thread.
	 */
	/* Make what the workers share. 0; SERVICE_NOT_OFFERED when this machine lacks what it needs, and the daemon
	 * starts without it; or a negative errno, and the daemon does not start. It logged the cause. NULL: the
	 * service needs nothing and is always open. */
	int (*open)(const struct service_host *host, const void *settings, void **shared);
	bool always; /* it is opened though it is not wanted: it costs nothing, and a reload may want it */
	void (*close)(void *shared); /* the workers have ended */
	/* Its clock: called at least once a second. When it must be called again. */
	uint64_t (*tick)(void *shared, uint64_t now);
	/* Whether this machine lets it open, found out beside a daemon that may run: 0 or -errno, as open(), logged.
	 * `services`: bits of all that are asked for. */
	int (*check)(const void *settings, uint64_t services);
	/* Descriptors that it may have beside those of its connections. */
	unsigned (*descriptors)(const void *settings);
	/* Bytes that it registers with each device when it opens. */
	uint64_t (*registered)(const void *settings);
	/* Read files again that its settings name: 0, and in *changed the setting whose file has other content now; or
	 * -errno, logged, and nothing changed. */
	int (*reload)(void *shared, const char **changed);
	/* Whether its keys are shared out by an engine, and what it is told then. NULL: it has none. */
	bool (*engine)(const void *settings, struct service_engine *out);
	const struct service_cluster *cluster;
	/* Carry out a word of rdmactl's: 0, or -errno; -ENOENT: not one of its words. */
	int (*command)(void *shared, const char *word);
	/* What it adds to the answers of that name. `shared` is NULL when it is not open: memory and resources then say
	 * so by numbers of 0, status is not asked. */
	void (*status)(const void *shared, struct service_report *report);
	void (*memory)(const void *shared, struct service_report *report);
	void (*resources)(const void *shared, struct service_report *report);

	/* A worker thread. The worker, but for the first two: main thread, before and after the worker runs.
	 */
	size_t part_size; /* of the struct that begins with a struct service_part; 0: that is all. Zeros at first */
	int (*part_init)(struct service_part *part); /* 0 or -errno, logged */
	void (*part_clear)(struct service_part *part);
	/* To be watched for reading; does not change; -1: none. readable(): it is. */
	int (*fd)(const struct service_part *part);
	void (*readable)(struct service_part *part);
	/* What follows is called only while part->active is not 0. */
	/* After each turn of the groups, and behind service_part_ask(). How much was done: 0 says that it may be time
	 * to sleep. */
	int (*progress)(struct service_part *part);
	/* When progress() must be called though nothing comes. */
	uint64_t (*deadline)(const struct service_part *part);
	/* Before sleeping, as fabric_arm(); false: do not. disarm() after it, whatever arm() said, unless nothing of
	 * the part is active any more. */
	bool (*arm)(struct service_part *part);
	void (*disarm)(struct service_part *part);
	/* The thread is about to end, and what it made must not outlive it. May wait. */
	void (*end)(struct service_part *part);
	/* What durations it tells of: SERVICE_TIMES(READ) and others. */
	unsigned times;
	/* How many requests of each class were answered so far, where other counters say so. */
	void (*answered)(const struct service_part *part, uint64_t classes[static SERVICE_COUNTED]);
	/* Add to `count` what is only counted when asked for. */
	void (*count)(const struct service_part *part, uint64_t *count);

	/* Connections that belong together are to have one worker, which lasts for their lives: those with the same
	 * number here. 0, or NULL: any worker, the one that has least to do. Main thread. */
	unsigned (*worker)(const struct wire_request *request);

	/* A connection. Its worker.
	 */
	/* Check a request that was decoded and fill what the service grants. A reason other than WIRE_REASON_NONE
	 * refuses, with *detail. NULL: every client may. */
	enum wire_reason (*admit)(struct service_part *part, const struct service_way *way,
				  const struct wire_request *request, struct wire_accept *grant, uint64_t *detail);
	const struct conn_ops *ops;
	/* Make the agent of one connection; it is freed by ops->closed. NULL: no memory. */
	void *(*agent_new)(struct service_part *part, const struct service_way *way);
	/* A connection came to nothing; closed() is not called. */
	void (*agent_free)(void *agent);
	/* What the agent's connection has of its own. */
	void (*attr)(void *agent, struct conn_attr *attr);
	/* The daemon is to end, and nothing of the connection is in flight: close it, or finish first what was begun.
	 * Called again and again. NULL: it is closed. */
	void (*drain)(struct conn *conn);
	/* Whether no request of the connection waits for its answer. A service that has this tells its clients to
	 * leave, so that they lose nothing, and has no drain(). */
	bool (*quiet)(const struct conn *conn);
	/* Each record that comes is a request, and has one answer: what is not answered is in flight. */
	bool answers_each;
	/* The rights of the connection's client (conn_client()) are others now. NULL: it looks at each request. */
	void (*revised)(struct conn *conn);

	/* In place of these, of a service whose connections are streams.
	 */
	void (*door)(const void *settings, struct service_door *out);
	/* What a client is sent that is refused: a line of its protocol. */
	const char *(*refusal)(enum wire_reason reason);
	/* Take one, in its worker. Consumes open->fd in every case, open->share and open->admission if it returns 0. */
	int (*stream)(struct service_part *part, struct stream_group *group, struct stream_open *open);
};

#define SERVICE_NOT_OFFERED 1

/*
 * service.c: the table, and what the process has. Main thread, but for what looks up and refuses.
 */

/* NULL: no such service in this build. Any thread. */
const struct service *service_find(unsigned id);

/* For `worker`: of requests whose count is the hash of a name, all of one name. */
unsigned service_worker_of_name(const struct wire_request *request);

/* Open those of `services`, bits 1 << enum wire_service; settings[id] are the values of its table. 0, or -errno and
 * none is open. */
int service_shared_open(struct service_shared *shared, const struct service_host *host, uint64_t services,
			void *const settings[WIRE_SERVICES]);
void service_shared_close(struct service_shared *shared);
/* The word is that of one of them: its answer; else -ENOENT. */
int service_shared_command(struct service_shared *shared, const char *word);
/* service->reload() of the one that has it. */
int service_shared_reload(struct service_shared *shared, const char **changed);
/* When to be called again; TIME_NEVER: no need. */
uint64_t service_shared_tick(struct service_shared *shared, uint64_t now);

/* Whether clients can be served. */
static inline bool service_is_open(const struct service_shared *shared, unsigned id)
{
	return shared->open & 1ull << id;
}

/*
 * thread.c: what a worker thread has. The worker, but for create and free: main thread, while the worker does not run.
 */
int service_thread_create(struct service_thread *thread, const struct service_shared *shared);
/* After its connections ended. May wait, as end(). */
void service_thread_free(struct service_thread *thread);

/* For must(): the calling thread is the worker, or the main thread while that does not run. */
static inline bool service_thread_is_mine(const struct service_thread *thread)
{
	return !thread->owner || thread->owner == thread_self();
}

/* The calling thread takes the parts over, until it gives them back. */
void service_thread_own(struct service_thread *thread);
void service_thread_disown(struct service_thread *thread);

/* Take one connection for a service. Consumes fabric_request in every case. `share`, `admission`: see struct
 * conn_attr. */
int service_accept(const struct service *service, struct service_thread *thread, struct conn_group *group,
		   struct fabric_request *fabric_request, const struct wire_request *request, struct quota_share *share,
		   struct auth_admission *admission);

int service_accept_stream(const struct service *service, struct service_thread *thread, struct stream_group *group,
			  struct stream_open *open);

/* No new connections are taken: tell the client to leave, where the service does so. Once or again. */
void service_leave(struct conn *conn);
/* Its client's rights are others now. */
void service_revised(struct conn *conn);

/* The daemon is to end: the service's drain() where it has one. Again and again. */
void service_drain(struct conn *conn);

/* conn_get_info(), in which the service knows better what is in flight. */
void service_get_info(const struct conn *conn, struct conn_info *out);

/* The hooks of the same names, of all parts. */
int service_thread_turn(struct service_thread *thread);
uint64_t service_thread_deadline(const struct service_thread *thread);
bool service_thread_arm(struct service_thread *thread);
void service_thread_disarm(struct service_thread *thread);
void service_thread_end(struct service_thread *thread);

/* After each turn of the groups. */
static inline int service_thread_progress(struct service_thread *thread)
{
	bool asked = atomic_load_explicit(&thread->asked, memory_order_relaxed);

	return unlikely(thread->active | asked) ? service_thread_turn(thread) : 0;
}

/*
 * After a turn in which something was done, before the next: it took so long. What was answered in it took as long,
 * from when the connection was looked at until its answers had left: so no request pays for a look at the clock. A
 * request whose answer has to wait has a time of its own, service_part_late().
 */
void service_thread_time(struct service_thread *thread, uint64_t took);

/* The counts so far, with the ones that are kept elsewhere. */
void service_thread_get_counts(const struct service_thread *thread, struct service_counts *out);
void service_counts_add(struct service_counts *into, const struct service_counts *from);

/* Takes over the limit of the log of slow requests, for all parts. Again when it has changed. */
void service_thread_slow(struct service_thread *thread, struct service_slow *slow);

/*
 * slow.c: the log of slow requests, the last ones of all services and workers. The service finds out how long a request
 * takes, and only where part->slow is not 0. Any thread, but for create, destroy and set: main thread.
 */
#define SERVICE_SLOW_MAX 512u
#define SERVICE_SLOW_KEY 128u /* bytes of a key that are kept */

struct service_slow_request {
	const char *operation; /* stays */
	uint64_t took;         /* ns */
	uint64_t size;         /* bytes of the request and of its answer, values included */
	const void *key;       /* NULL: it has none */
	size_t key_len;
	const char *client; /* its address */
	const char *key_of; /* auth_admission_name() */
};

struct service_slow_entry {
	uint64_t id; /* rises */
	uint64_t at; /* us since 1970, when it ended */
	uint64_t took, size;
	enum wire_service service;
	const char *operation;
	char client[128], key_of[AUTH_NAME_MAX + 1];
	uint32_t key_len; /* 0: keys are not kept */
	char key[SERVICE_SLOW_KEY];
};

int service_slow_create(struct service_slow **out);   /* 0 or -ENOMEM. Off */
void service_slow_destroy(struct service_slow *slow); /* NULL is fine */
void service_slow_set(struct service_slow *slow, uint64_t limit, bool keys);
uint64_t service_slow_limit(const struct service_slow *slow);
/* In the worker of the part. */
void service_slow_add(struct service_part *part, const struct service_slow_request *request);
/* The last `most` of them, the last one first: how many. */
size_t service_slow_read(struct service_slow *slow, struct service_slow_entry *out, size_t most);
uint64_t service_slow_count(struct service_slow *slow);
void service_slow_reset(struct service_slow *slow);

/*
 * hot.c: keys that are asked for most, looked for during a time that an operator chooses; else it costs nothing. The
 * worker.
 */
#define SERVICE_HOT_KEYS 128u /* of a worker */
#define SERVICE_HOT_SUM 256u  /* of all */

struct service_hot_key {
	uint64_t hash, count; /* of requests that were taken */
	uint64_t over;        /* so many of them may be another key's */
	uint32_t len;
	char key[SERVICE_SLOW_KEY]; /* its beginning */
};

struct service_hot_table {
	uint64_t seen, sampled; /* requests for a key; how many of them were taken */
	unsigned keys;
	struct service_hot_key key[SERVICE_HOT_KEYS];
};

struct service_hot_sum {
	uint64_t seen, sampled;
	unsigned keys; /* the most frequent first */
	struct service_hot_key key[SERVICE_HOT_SUM + SERVICE_HOT_KEYS];
};

int service_hot_begin(struct service_thread *thread, uint64_t until); /* anew. 0 or -ENOMEM */
bool service_hot_is_on(const struct service_thread *thread);
void service_hot_end(struct service_thread *thread);
/* free() it; NULL: there is none, or no memory. */
struct service_hot_table *service_hot_copy(const struct service_thread *thread);
/* A request is about this key. For services, while part->slow is not 0. */
void service_hot_key(struct service_part *part, const void *key, size_t len);
/* Any thread. */
void service_hot_add(struct service_hot_sum *into, const struct service_hot_table *from);

/*
 * For services.
 */
static inline uint64_t service_part_now(const struct service_part *part)
{
	return part->thread->now;
}

/* A request is answered in this turn. */
static inline void service_part_answered(struct service_part *part, enum service_class class)
{
	part->answered[class]++;
}

/* So many requests that are counted in this turn have a time of their own: they were taken up earlier, or their answers
 * wait. */
static inline void service_part_late(struct service_part *part, enum service_class class, uint64_t times)
{
	part->late[class] += times;
}

/* So many are answered now, and were taken up then. */
static inline void service_part_took(struct service_part *part, enum service_class class, uint64_t since,
				     uint64_t times)
{
	buckets_add(&part->took[class], BUCKETS_REQUEST, part->thread->now - since, times);
}

/* A large value has arrived, perhaps in the turn in which it left. */
static inline void service_part_moved(struct service_part *part, enum service_class class, uint64_t since)
{
	buckets_add(&part->took[class], BUCKETS_REQUEST, time_now() - since, 1);
}

/* Whether a request that took so long goes into the log of slow ones. */
static inline bool service_part_is_slow(const struct service_part *part, uint64_t took)
{
	return part->slow && took >= part->slow;
}

static inline bool service_part_is_mine(const struct service_part *part)
{
	return service_thread_is_mine(part->thread);
}

/* Something of the part wants turns, or does no more. */
static inline void service_part_join(struct service_part *part)
{
	must(service_part_is_mine(part));
	part->active++;
	part->thread->active++;
}

/* Any thread: what this one writes is seen in a call of progress() that comes, between two requests. The thread may
 * sleep: to wake it is the caller's. */
static inline void service_part_ask(struct service_part *part)
{
	atomic_store(&part->asked, true);
	atomic_store(&part->thread->asked, true);
}

static inline void service_part_leave(struct service_part *part)
{
	must(service_part_is_mine(part) && part->active > 0);
	part->active--;
	part->thread->active--;
}

#endif
