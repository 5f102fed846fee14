/*
 * conn.c: a channel over a connection. What is put stays in this end's ring until flush sends it: little of it in a
 * record, more of it by a write into the peer's ring and a record that says how far it goes. The peer's tail comes with
 * what it sends, by itself when a quarter of the ring was got, and when it is asked for; nothing is read back.
 */
#include "channel/conn.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define COPIED_MAX 4096u /* bytes of a flush that travel in the record */
#define LOCK_TRIES 200   /* at a lock that is held for a turn, before sleeping on it */
#define CLOSE_TIMEOUT TIME_S
#define CLOSE_TIMEOUT_RELAYED (5 * TIME_S) /* what is at the rdmad is lost with the connection to it */

static struct channel_far *far_of(const struct rdmad_channel *channel)
{
	return (struct channel_far *)channel;
}

/*
 * The lock. Two threads share it for some hundred nanoseconds at a time. A lock waiter tries for a while, and a thread
 * that polls stands back.
 */
void channel_far_enter(struct channel_far *far)
{
	unsigned tries = 0;

	if (likely(pthread_mutex_trylock(&far->lock) == 0)) {
		engine_enter(far->engine);
		return;
	}
	atomic_fetch_add(&far->lock_waiters, 1);
	while (tries < LOCK_TRIES && pthread_mutex_trylock(&far->lock) != 0)
		tries++;
	if (tries == LOCK_TRIES)
		pthread_mutex_lock(&far->lock);
	atomic_fetch_sub(&far->lock_waiters, 1);
	engine_enter(far->engine);
}

static bool far_try_enter(struct channel_far *far)
{
	if (atomic_load_explicit(&far->lock_waiters, memory_order_relaxed) || pthread_mutex_trylock(&far->lock) != 0)
		return false;
	engine_enter(far->engine);
	return true;
}

/*
 * Telling the peer
 */

/* Notes the tail that is being said: of what is got later the thread that gets tells. */
static void far_told(struct channel_far *far, uint64_t tail)
{
	atomic_store_explicit(&far->told, tail, memory_order_relaxed);
	if (tail >= atomic_load(&far->wanted))
		atomic_store(&far->wanted, UINT64_MAX);
	far->tell = false;
}

/* A record of one index. */
static bool far_say_index(struct channel_far *far, enum wire_op op, uint64_t index)
{
	struct wire_record *record = conn_reserve(far->conn, sizeof(index), NULL);

	if (!record)
		return false;
	record->op = (uint8_t)op;
	memcpy(record + 1, &index, sizeof(index));
	conn_commit(far->conn, record, sizeof(index));
	return true;
}

void channel_far_tell(struct channel_far *far)
{
	uint64_t tail = atomic_load(&far->channel.in.tail);

	far->tell = !far_say_index(far, WIRE_OP_CHANNEL_TAIL, tail);
	if (!far->tell)
		far_told(far, tail);
}

/* Fill in a record of CHANNEL_DATA with `copied` bytes behind it. */
static void far_commit_data(struct channel_far *far, struct wire_record *record, uint64_t head, uint32_t copied)
{
	struct wire_channel_data data = {.head = head, .tail = atomic_load(&far->channel.in.tail)};

	far_told(far, data.tail);
	record->op = WIRE_OP_CHANNEL_DATA;
	record->arg = copied;
	memcpy(record + 1, &data, sizeof(data));
	conn_commit(far->conn, record, (uint32_t)sizeof(data) + copied);
}

void channel_far_say_last(struct channel_far *far)
{
	struct wire_record *record = conn_reserve(far->conn, sizeof(struct wire_channel_data), NULL);

	far->say_last = !record;
	if (!record)
		return;
	record->flags = WIRE_CHANNEL_LAST;
	far_commit_data(far, record, far->sent, 0);
	far->said_last = true;
}

/* After a turn: a flush whose bytes had no room may be through. */
static void far_check_unsent(struct channel_far *far)
{
	if (likely(!far->unsent) || (far->conn && fabric_unsent(conn_endpoint(far->conn))))
		return;
	far->unsent = false;
	channel_far_resume(far);
}

/*
 * Flush
 */

/* The writable() or the end of a write that follows lets it go on. */
static int far_block(struct channel_far *far)
{
	far->blocked = true;
	return -EAGAIN;
}

void channel_far_resume(struct channel_far *far)
{
	far->resumed |= far->blocked;
	far->blocked = false;
}

/* Sends as many of `count` bytes as a message takes, or returns -EAGAIN. */
static int64_t far_send_copy(struct channel_far *far, uint64_t from, uint64_t count)
{
	const struct channel_mirror *mirror = &far->channel.out.mirror;
	uint32_t most = WIRE_BODY_MAX(conn_granted(far->conn)->message_size) - sizeof(struct wire_channel_data);
	uint32_t n = (uint32_t)MIN(count, (uint64_t)most);
	struct wire_record *record = conn_reserve(far->conn, (uint32_t)sizeof(struct wire_channel_data) + n, NULL);

	if (!record)
		return far_block(far);
	memcpy((char *)(record + 1) + sizeof(struct wire_channel_data), mirror->data + from % mirror->size, n);
	far_commit_data(far, record, from + n, n);
	return n;
}

/* Tells the thread that puts how much may be overwritten. */
void channel_far_free(struct channel_far *far)
{
	uint64_t tail = far->got;

	if (far->writes)
		tail = MIN(tail, far->write[far->first].begin);
	atomic_store_explicit(&far->tail, tail, memory_order_release);
}

static void far_written(struct conn_transfer *transfer, enum fabric_status status)
{
	struct channel_far *far = container_of(transfer, struct channel_far_write, transfer)->far;

	must(far->writes && transfer == &far->write[far->first].transfer);
	far->first = (far->first + 1) % CHANNEL_FAR_WRITES;
	far->writes--;
	if (status == FABRIC_OK) /* else the peer's device may still ask for the bytes, and the end is near */
		channel_far_free(far);
	channel_far_resume(far);
}

/* Two work requests, whatever the count. */
static int64_t far_send_write(struct channel_far *far, uint64_t from, uint64_t count)
{
	const struct channel_mirror *mirror = &far->channel.out.mirror;
	struct channel_far_write *write = &far->write[(far->first + far->writes) % CHANNEL_FAR_WRITES];
	struct fabric_sge sge = {mirror->data + from % mirror->size, count, far->out};
	struct wire_record *record;

	if (far->writes == CHANNEL_FAR_WRITES)
		return far_block(far);
	record = conn_reserve(far->conn, sizeof(struct wire_channel_data), NULL);
	if (!record)
		return far_block(far);
	*write = (struct channel_far_write){.transfer.done = far_written, .far = far, .begin = from};
	if (conn_write_more(far->conn, &write->transfer, &sge, far->remote_addr + from % far->remote_ring,
			    far->remote_rkey) != 0)
		return far_block(far); /* or the connection ends */
	far->writes++;
	far_commit_data(far, record, from + count, 0);
	return (int64_t)count;
}

static int far_push(struct channel_far *far)
{
	struct channel_out *out = &far->channel.out;
	uint64_t head = atomic_load_explicit(&out->head, memory_order_acquire);
	int64_t n = 0;

	far->blocked = far->resumed = false;
	while (far->sent != head && n >= 0) {
		uint64_t remainder = head - far->sent;
		bool copied = remainder <= COPIED_MAX || !far->remote_addr;

		n = copied ? far_send_copy(far, far->sent, remainder) : far_send_write(far, far->sent, remainder);
		if (n > 0)
			far->sent += (uint64_t)n;
	}
	conn_flush(far->conn);
	far->unsent = fabric_unsent(conn_endpoint(far->conn));
	if (far->unsent)
		n = far_block(far);
	else
		atomic_store_explicit(&out->flushed, far->sent, memory_order_release);
	if (far->asleep)
		fabric_arm(conn_group_queue(engine_group(far->engine))); /* a sleeper would not see it on its way */
	return n < 0 ? (int)n : 0;
}

static int far_flush(struct rdmad_channel *channel)
{
	struct channel_far *far = far_of(channel);
	int rc;

	if (atomic_load_explicit(&channel->out.head, memory_order_relaxed) ==
	    atomic_load_explicit(&channel->out.flushed, memory_order_relaxed))
		return 0;
	channel_far_enter(far);
	/* A program that only puts would not hear of the peer's end. */
	if (unlikely(!far->asleep && far->conn && conn_hung_up(far->conn, time_coarse()))) {
		engine_see_end(far->engine, &far->conn);
		far_check_unsent(far);
	}
	rc = channel_far_ended(far);
	if (rc == 0)
		rc = far->conn ? far_push(far) : -EAGAIN;
	if (unlikely(far->waiting)) /* perhaps for this flush */
		pthread_cond_broadcast(&far->turned);
	channel_far_leave(far);
	return rc;
}

/*
 * Polling and waiting
 */

/* The turn of one thread may have brought what the other one waits for. */
static void far_turned(struct channel_far *far)
{
	if (unlikely(far->waiting))
		pthread_cond_broadcast(&far->turned);
}

static bool far_news(const struct channel_far *far, enum channel_way way)
{
	return way == CHANNEL_GET ? atomic_load_explicit(&far->head, memory_order_relaxed) != far->channel.in.head
				  : atomic_load_explicit(&far->tail, memory_order_relaxed) != far->channel.out.tail;
}

static int far_poll(struct rdmad_channel *channel, enum channel_way way, uint64_t now)
{
	struct channel_far *far = far_of(channel);
	int rc, ended;

	if (!far_news(far, way) && far_try_enter(far)) {
		if (!far->asleep && far->conn && engine_turn_at(far->engine, now ? now : time_now())) {
			far_check_unsent(far);
			far_turned(far);
		}
		channel_far_leave(far);
	}
	ended = channel_far_ended(far); /* first: what came before it is still to be learnt */
	rc = way == CHANNEL_GET ? channel_in_told(channel, atomic_load_explicit(&far->head, memory_order_acquire))
				: channel_out_told(channel, atomic_load_explicit(&far->tail, memory_order_acquire));
	return ended ? ended : rc;
}

/* The exchange: see far_record_want(). */
static void far_taken(struct rdmad_channel *channel)
{
	struct channel_far *far = far_of(channel);
	uint64_t tail = atomic_load_explicit(&channel->in.tail, memory_order_relaxed);
	uint64_t wanted = atomic_fetch_or(&far->wanted, 0);

	if (likely(tail < wanted &&
		   tail - atomic_load_explicit(&far->told, memory_order_relaxed) < channel->capacity / 4))
		return;
	channel_far_enter(far);
	if (far->conn && far->state == CHANNEL_FAR_OPEN) {
		channel_far_tell(far);
		conn_flush(far->conn);
	}
	channel_far_leave(far);
}

/* Asks the peer to say when it has got more, as there is no room before. Once for each index. */
static void far_want(struct channel_far *far, uint64_t index)
{
	if (!far->conn || far->got >= index || far->want == index || index > atomic_load(&far->channel.out.head))
		return;
	if (!far_say_index(far, WIRE_OP_CHANNEL_WANT, index))
		return; /* no credit: what brings one wakes, and it is said then */
	far->want = index;
	conn_flush(far->conn);
}

static bool far_reached(const struct channel_far *far, enum channel_way way, uint64_t index)
{
	const _Atomic uint64_t *it = way == CHANNEL_GET ? &far->head : &far->tail;
	const struct channel_out *out = &far->channel.out;
	uint64_t head;

	if (channel_far_ended(far) || far->resumed || atomic_load_explicit(it, memory_order_relaxed) >= index)
		return true;
	head = atomic_load(&out->head);
	/* A wait for a flush names an index that the peer cannot reach. */
	return way == CHANNEL_PUT && index > head && atomic_load(&out->flushed) == head;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / TIME_S), .tv_nsec = (long)(ns % TIME_S)};
}

/* Another thread sleeps in the engine: it tells. */
static void far_wait_for_turn(struct channel_far *far, uint64_t until)
{
	struct timespec at = timespec_of(until);

	engine_leave(far->engine);
	far->waiting++;
	if (until == TIME_NEVER)
		pthread_cond_wait(&far->turned, &far->lock);
	else
		pthread_cond_timedwait(&far->turned, &far->lock, &at);
	far->waiting--;
	engine_enter(far->engine);
}

/* The engine is armed. */
static void far_sleep_in_engine(struct channel_far *far, uint64_t now, uint64_t until)
{
	struct pollfd pfd = {.fd = engine_fd(far->engine), .events = POLLIN};
	struct timespec timeout;

	until = MIN(until, conn_group_deadline(engine_group(far->engine)));
	if (until <= now)
		return;
	timeout = timespec_of(until - now);
	far->asleep = true;
	channel_far_leave(far);
	ppoll(&pfd, 1, until == TIME_NEVER ? NULL : &timeout, NULL);
	channel_far_enter(far);
	far->asleep = false;
}

static int far_wait(struct channel_far *far, enum channel_way way, uint64_t index, uint64_t until)
{
	while (!far_reached(far, way, index)) {
		uint64_t now = time_now();
		int work;

		if (way == CHANNEL_PUT)
			far_want(far, index);
		if (far->asleep && now < until) {
			far_wait_for_turn(far, until);
			continue;
		}
		if (far->asleep)
			return -ETIMEDOUT;
		/* A caller that only polls is not woken by what comes: the peer's system calls would take longer. */
		work = now < until ? engine_arm(far->engine) : engine_turn_at(far->engine, now);
		far_check_unsent(far);
		if (work)
			far_turned(far);
		if (far_reached(far, way, index))
			break;
		if (now >= until)
			return -ETIMEDOUT;
		if (!work)
			far_sleep_in_engine(far, now, until);
	}
	return channel_far_ended(far);
}

static int far_sleep(struct rdmad_channel *channel, enum channel_way way, uint64_t index, uint64_t until)
{
	struct channel_far *far = far_of(channel);
	int rc;

	channel_far_enter(far);
	rc = far_wait(far, way, index, until);
	far_turned(far); /* the waiting thread sleeps in the engine now */
	channel_far_leave(far);
	return rc;
}

/* Without the lock, which the caller may have. */
static void far_wake(struct rdmad_channel *channel)
{
	struct channel_far *far = far_of(channel);
	struct epoll_event event = {.events = EPOLLIN};

	far->end_event = eventfd(1, EFD_CLOEXEC);
	if (far->end_event < 0 || epoll_ctl(engine_fd(far->engine), EPOLL_CTL_ADD, far->end_event, &event) != 0)
		log_warn("channel", "cannot wake a thread that sleeps: %m");
}

/* The closing thread can sleep again. */
static void far_unwake(struct channel_far *far)
{
	if (far->end_event < 0)
		return;
	epoll_ctl(engine_fd(far->engine), EPOLL_CTL_DEL, far->end_event, NULL);
	close(far->end_event);
	far->end_event = -1;
}

static int far_fd(const struct rdmad_channel *channel)
{
	return engine_fd(far_of(channel)->engine);
}

/* Whether there is anything by which a program that sleeps would wake. */
static bool far_told_of(const struct channel_far *far)
{
	uint64_t wanted = far->channel.out.wanted;

	return channel_far_ended(far) || far->resumed || far_news(far, CHANNEL_GET) ||
	       (wanted && atomic_load_explicit(&far->tail, memory_order_relaxed) >= wanted);
}

static int far_arm(struct rdmad_channel *channel)
{
	struct channel_far *far = far_of(channel);
	bool news;

	channel_far_enter(far);
	if (channel->out.wanted)
		far_want(far, channel->out.wanted);
	do {
		far_check_unsent(far);
		news = far_told_of(far);
	} while (!news && far->conn && engine_arm(far->engine));
	news = far_told_of(far); /* also of what ended without work */
	if (channel->out.wanted && atomic_load(&far->tail) >= channel->out.wanted)
		channel->out.wanted = 0;
	channel_far_leave(far);
	return news;
}

/*
 * Beginning and end
 */

/* Waits until the peer has said its last word, which says that it has all; or, where it closed first, until it has
 * ours. */
static int far_goodbye(struct channel_far *far)
{
	struct channel_out *out = &far->channel.out;
	bool first = !far->last;
	bool whole = atomic_load(&out->flushed) == atomic_load(&out->head);
	uint64_t timeout = CLOSE_TIMEOUT;

	if (far->relayed && far->got != atomic_load(&out->head))
		timeout = CLOSE_TIMEOUT_RELAYED;
	if (far->conn && (far->last || (whole && !channel_far_ended(far)))) {
		far->over = false;
		if (first)
			channel_far_say_last(far);
		conn_flush(far->conn);
		engine_wait(far->engine, &far->over, timeout);
	}
	if (far->got == atomic_load(&out->head) || (whole && first && far->last))
		return 0;
	if (channel_far_ended(far))
		return channel_far_ended(far);
	if (!far->relayed && atomic_load(&out->flushed) == atomic_load(&out->head))
		return 0; /* it is at the peer's machine, whose program gets it later */
	return log_fail(-ETIMEDOUT, "channel", "closed while %s had not got %llu bytes, which may be lost", far->peer,
			(unsigned long long)(atomic_load(&out->head) - far->got));
}

/* Inside; leaves. A connection that is still there ends without a word. */
static void far_dismantle(struct channel_far *far)
{
	if (far->engine) {
		far_unwake(far);
		fabric_deregister(far->in);
		fabric_deregister(far->out);
		channel_far_leave(far);
		engine_release(far->engine);
	}
	pthread_cond_destroy(&far->turned);
	pthread_mutex_destroy(&far->lock);
}

static int far_close(struct rdmad_channel *channel)
{
	struct channel_far *far = far_of(channel);
	int rc;

	channel_far_enter(far);
	far_unwake(far);
	rc = far_goodbye(far);
	far->over = !far->conn;
	client_disconnect(far->engine, far->conn, &far->over);
	far_dismantle(far);
	return rc;
}

void channel_far_drop(struct channel_far *far)
{
	if (far->engine)
		channel_far_enter(far);
	far->state = CHANNEL_FAR_REFUSED;
	far_dismantle(far);
	channel_free(&far->channel);
}

static void far_info(const struct rdmad_channel *channel, struct rdmad_channel_info *info)
{
	const struct channel_far *far = far_of(channel);

	if (far->by) {
		snprintf(info->transport, sizeof(info->transport), "%s", far->by->name);
		info->memory = far->by->inside;
		info->sockets = far->by->processor;
	}
	snprintf(info->peer, sizeof(info->peer), "%s", far->peer);
	info->relayed = far->relayed;
}

static const struct channel_transport channel_far = {
	.flush = far_flush,
	.look = far_poll,
	.taken = far_taken,
	.sleep = far_sleep,
	.wake = far_wake,
	.fd = far_fd,
	.arm = far_arm,
	.close = far_close,
	.info = far_info,
};

struct channel_far *channel_far_new(uint64_t capacity, const struct rdmad_channel_options *options)
{
	struct channel_far *far = channel_new(sizeof(*far), &channel_far, capacity, options);
	pthread_condattr_t monotonic;

	if (!far)
		return NULL;
	far->end_event = -1;
	atomic_init(&far->wanted, UINT64_MAX);
	pthread_mutex_init(&far->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&far->turned, &monotonic);
	pthread_condattr_destroy(&monotonic);
	return far;
}
