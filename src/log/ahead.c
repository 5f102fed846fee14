/*
 * ahead.c: the next piece of a file is read by a thread while the one before it is looked through, so that disk and processor work at
 * the same time. There is at most one piece on its way, and who asked for it makes no other call of the file operations
 * before it was taken: so these need no locks. The thread begins with the first piece, as most files have only one.
 */
#include "log/internal.h"

#include "base/thread.h"

void ahead_init(struct ahead *ahead, const struct wal_files *files)
{
	*ahead = (struct ahead){.files = files};
	pthread_mutex_init(&ahead->lock, NULL);
	pthread_cond_init(&ahead->changed, NULL);
}

void ahead_fini(struct ahead *ahead)
{
	if (ahead->running) {
		pthread_mutex_lock(&ahead->lock);
		ahead->stop = true;
		pthread_cond_broadcast(&ahead->changed);
		pthread_mutex_unlock(&ahead->lock);
		pthread_join(ahead->thread, NULL);
	}
	pthread_cond_destroy(&ahead->changed);
	pthread_mutex_destroy(&ahead->lock);
}

ssize_t read_some(const struct wal_files *files, int fd, struct iovec iov, uint64_t at, size_t least)
{
	size_t done = 0;

	while (done < least) {
		ssize_t got = files->preadv(files->arg, fd, &iov, 1, at + done);

		if (got < 0)
			return got;
		if (got == 0)
			break;
		done += (size_t)got;
		iov.iov_base = (char *)iov.iov_base + got;
		iov.iov_len -= (size_t)got;
	}
	return (ssize_t)done;
}

static void *ahead_run(void *arg)
{
	struct ahead *ahead = arg;

	pthread_mutex_lock(&ahead->lock);
	while (!ahead->stop) {
		if (!ahead->reading) {
			pthread_cond_wait(&ahead->changed, &ahead->lock);
			continue;
		}
		pthread_mutex_unlock(&ahead->lock);
		ahead->got = read_some(ahead->files, ahead->fd, ahead->to, ahead->at, ahead->to.iov_len);
		pthread_mutex_lock(&ahead->lock);
		ahead->reading = false;
		pthread_cond_broadcast(&ahead->changed);
	}
	pthread_mutex_unlock(&ahead->lock);
	return NULL;
}

void ahead_ask(struct ahead *ahead, int fd, struct iovec to, uint64_t at)
{
	must(!ahead->asked);
	if (!ahead->running && thread_start(&ahead->thread, "log-ahead", ahead_run, ahead) != 0)
		return; /* it is read when it is needed */
	pthread_mutex_lock(&ahead->lock);
	ahead->running = ahead->asked = ahead->reading = true;
	ahead->fd = fd;
	ahead->to = to;
	ahead->at = at;
	pthread_cond_broadcast(&ahead->changed);
	pthread_mutex_unlock(&ahead->lock);
}

bool ahead_take(struct ahead *ahead, uint64_t at, ssize_t *got)
{
	if (!ahead->asked)
		return false;
	pthread_mutex_lock(&ahead->lock);
	while (ahead->reading)
		pthread_cond_wait(&ahead->changed, &ahead->lock);
	pthread_mutex_unlock(&ahead->lock);
	ahead->asked = false;
	*got = ahead->got;
	return ahead->at == at;
}
