/*
 * munge.c: credentials of clients are checked by a thread beside, as munged may take its time. A check goes into the
 * queue of the thread, and comes back by the list of its group, which is woken. Of its connection the thread knows
 * nothing: that may end meanwhile.
 */
#include "base/thread.h"
#include "conn/internal.h"

#include <stdlib.h>

#define CHECKS_MAX 256 /* that wait for the thread */

struct conn_munge {
	pthread_mutex_t lock;
	pthread_cond_t more; /* in the queue, or it ends */
	pthread_t thread;
	bool started, ends;
	struct list queue;
	unsigned queued;
};

/* The server's credential has its proof by the secret of the client's, so that it is in answer to no other. */
static void check_carry_out(struct check *check)
{
	struct auth_key key = auth_munge;
	struct auth_munge_payload found;
	uint8_t proof[AUTH_PROOF];

	check->rc = auth_munge_decode(check->credential, &found, sizeof(found), &check->uid, check->why);
	if (check->rc != 0)
		return;
	if (memcmp(found.th.hash, check->payload.th.hash, sizeof(found.th.hash)) != 0) {
		snprintf(check->why, sizeof(check->why), "the credential is about another connection");
		check->rc = -EACCES;
	} else {
		check->payload = found;
		memcpy(key.secret, found.secret, sizeof(key.secret));
		auth_prove(&key, &found.th, AUTH_SERVER, proof);
		check->rc = auth_munge_encode(proof, sizeof(proof), check->uid, check->credential, check->why);
	}
	auth_wipe(&found, sizeof(found));
	auth_wipe(&key, sizeof(key));
}

/* The group may free it as soon as it is in the list, but does not end before this thread has. */
static void check_give_back(struct check *check)
{
	struct conn_group *group = check->group;
	struct check *before = atomic_load(&group->checked);

	do
		check->next = before;
	while (!atomic_compare_exchange_weak(&group->checked, &before, check));
	group->attr.wake(group->attr.wake_arg);
}

static struct check *check_next(struct conn_munge *munge)
{
	struct check *check;

	if (list_empty(&munge->queue))
		return NULL;
	check = list_first(&munge->queue, struct check, node);
	list_del(&check->node);
	munge->queued--;
	return check;
}

static void *munge_run(void *arg)
{
	struct conn_munge *munge = arg;
	struct check *check;

	pthread_mutex_lock(&munge->lock);
	while (!munge->ends) {
		check = check_next(munge);
		if (!check) {
			pthread_cond_wait(&munge->more, &munge->lock);
			continue;
		}
		pthread_mutex_unlock(&munge->lock);
		if (!atomic_load(&check->abandoned))
			check_carry_out(check);
		check_give_back(check);
		pthread_mutex_lock(&munge->lock);
	}
	while ((check = check_next(munge)))
		check_give_back(check);
	pthread_mutex_unlock(&munge->lock);
	return NULL;
}

int conn_munge_create(struct conn_munge **out)
{
	struct conn_munge *munge = calloc(1, sizeof(*munge));

	if (!munge)
		return -ENOMEM;
	pthread_mutex_init(&munge->lock, NULL);
	pthread_cond_init(&munge->more, NULL);
	list_init(&munge->queue);
	*out = munge;
	return 0;
}

void conn_munge_stop(struct conn_munge *munge)
{
	pthread_mutex_lock(&munge->lock);
	munge->ends = true;
	pthread_cond_signal(&munge->more);
	pthread_mutex_unlock(&munge->lock);
	if (munge->started)
		pthread_join(munge->thread, NULL);
	munge->started = false;
}

void conn_munge_destroy(struct conn_munge *munge)
{
	if (!munge)
		return;
	must(!munge->started && list_empty(&munge->queue));
	pthread_cond_destroy(&munge->more);
	pthread_mutex_destroy(&munge->lock);
	free(munge);
}

/* With the lock. Why it is not taken; NULL: it is. */
static const char *munge_queue(struct conn_munge *munge, struct check *check)
{
	if (munge->ends)
		return "the daemon ends";
	if (munge->queued == CHECKS_MAX)
		return "too many credentials wait for munged; is it slow, or are these a flood?";
	if (!munge->started && thread_start(&munge->thread, "munge", munge_run, munge) != 0)
		return "no thread can be started";
	munge->started = true;
	list_add_tail(&munge->queue, &check->node);
	munge->queued++;
	pthread_cond_signal(&munge->more);
	return NULL;
}

struct check *conn_check_new(struct conn *conn, const struct auth_transcript *th, const char *credential, size_t length)
{
	struct conn_munge *munge = conn->group->attr.munge;
	struct check *check = calloc(1, sizeof(*check));
	const char *why = "no memory";

	must(length < sizeof(check->credential));
	if (check) {
		check->group = conn->group;
		check->conn = conn;
		check->payload.th = *th;
		memcpy(check->credential, credential, length);
		pthread_mutex_lock(&munge->lock);
		why = munge_queue(munge, check);
		pthread_mutex_unlock(&munge->lock);
	}
	if (!why) {
		conn->group->checks++;
		return check;
	}
	log_warn("conn", "the credential of %s cannot be checked: %s", conn->peer, why);
	conn_check_free(check);
	return NULL;
}

void conn_check_abandon(struct check *check)
{
	if (!check)
		return;
	check->conn = NULL;
	atomic_store(&check->abandoned, true);
}

void conn_check_free(struct check *check)
{
	if (!check)
		return;
	auth_wipe(check, sizeof(*check));
	free(check);
}

/* The first that was done comes first. */
static struct check *take_checked(struct conn_group *group)
{
	struct check *check = atomic_exchange(&group->checked, NULL), *first = NULL;

	while (check) {
		struct check *next = check->next;

		check->next = first;
		first = check;
		check = next;
	}
	return first;
}

int conn_checks_collect(struct conn_group *group)
{
	struct check *check = take_checked(group), *next;
	int n = 0;

	for (; check; check = next, n++) {
		next = check->next;
		group->checks--;
		if (check->conn)
			conn_prove_checked(check->conn, check);
		else
			conn_check_free(check);
	}
	return n;
}

void conn_checks_drop(struct conn_group *group)
{
	struct check *check = take_checked(group), *next;

	for (; check; check = next) {
		next = check->next;
		group->checks--;
		conn_check_free(check);
	}
	must(!group->checks);
}
