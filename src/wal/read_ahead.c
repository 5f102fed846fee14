/*
 * read_ahead.c: the next pieces of a file are read by a thread while the one before them is looked through, so that
 * disk and processor work at the same time, and one does not wait for the other where it is slow for a moment. The
 * caller that asked for pieces makes no other call of the file operations before they were taken: so these need no
 * locks. The thread begins with the first piece, as most files have only one.
 */
#include "wal/internal.h"

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
		struct ahead_piece *piece = &ahead->piece[(ahead->first + ahead->read) % AHEAD_MOST];

		if (ahead->read == ahead->asked) {
			pthread_cond_wait(&ahead->changed, &ahead->lock);
			continue;
		}
		pthread_mutex_unlock(&ahead->lock);
		piece->got = read_some(ahead->files, piece->fd, piece->to, piece->at, piece->to.iov_len);
		pthread_mutex_lock(&ahead->lock);
		ahead->read++;
		pthread_cond_broadcast(&ahead->changed);
	}
	pthread_mutex_unlock(&ahead->lock);
	return NULL;
}

bool ahead_ask(struct ahead *ahead, int fd, struct iovec to, uint64_t at)
{
	must(ahead->asked < AHEAD_MOST);
	if (!ahead->running && !ahead->alone)
		ahead->alone = thread_start(&ahead->thread, "log-ahead", ahead_run, ahead) != 0;
	if (ahead->alone)
		return false;
	pthread_mutex_lock(&ahead->lock);
	ahead->running = true;
	ahead->piece[(ahead->first + ahead->asked) % AHEAD_MOST] = (struct ahead_piece){.fd = fd, .to = to, .at = at};
	ahead->asked++;
	pthread_cond_broadcast(&ahead->changed);
	pthread_mutex_unlock(&ahead->lock);
	return true;
}

/* The first piece that was asked for. */
static struct ahead_piece ahead_next(struct ahead *ahead)
{
	struct ahead_piece piece;

	pthread_mutex_lock(&ahead->lock);
	while (ahead->read == 0)
		pthread_cond_wait(&ahead->changed, &ahead->lock);
	piece = ahead->piece[ahead->first];
	ahead->first = (ahead->first + 1) % AHEAD_MOST;
	ahead->asked--;
	ahead->read--;
	pthread_mutex_unlock(&ahead->lock);
	return piece;
}

bool ahead_take(struct ahead *ahead, uint64_t at, ssize_t *got)
{
	struct ahead_piece piece;

	if (!ahead->asked)
		return false;
	piece = ahead_next(ahead);
	*got = piece.got;
	if (piece.at == at)
		return true;
	ahead_drop(ahead);
	return false;
}

void ahead_drop(struct ahead *ahead)
{
	while (ahead->asked)
		ahead_next(ahead);
}
