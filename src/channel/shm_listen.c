/*
 * shm_listen.c: a listener of shared memory: it asks the kernel for the client's user, reads what the client wants,
 * makes the memory, and hands it over.
 */
#include "channel/shm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PENDING 16                /* clients that have connected and said nothing yet */
#define PENDING_TIME (5 * TIME_S) /* for it */
#define OBJECTS 1000              /* names of posix_memory that are tried; others may have them */
#define SWEPT 64                  /* sockets of other listeners that a new one checks */

struct client {
	struct pending_entry pending;
	struct shm_listener *listener;
	int fd;
};

struct shm_listener {
	struct rdmad_channel_listener base;
	struct rdmad_channel_options options;
	size_t capacity;
	int socket, epoll;
	struct pending pending;
	struct client client[PENDING]; /* those that are not pending are free */
	char name[RDMAD_CHANNEL_NAME_MAX + 1];
	struct local_file file;
};

/*
 * Memory and descriptors of one channel
 */

/* A lock on it says that its maker lives. */
static int object_open(const char *object, size_t size)
{
	int fd = shm_open(object, O_RDWR | O_CREAT | O_EXCL, 0600);

	if (fd < 0 && errno == EEXIST) {
		fd = shm_open(object, O_RDWR, 0600);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && shm_unlink(object) == 0)
			log_warn("channel", "%s was left behind by a program that died; it is replaced", object);
		if (fd >= 0)
			close(fd);
		fd = shm_open(object, O_RDWR | O_CREAT | O_EXCL, 0600);
	}
	if (fd < 0 && errno == EEXIST)
		return -EAGAIN;
	if (fd < 0) {
		int rc = -errno;

		log_error("channel", "cannot make the shared memory %s: %m", object);
		return rc == -EAGAIN ? -ENOMEM : rc;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) == 0 && ftruncate(fd, (off_t)size) == 0) {
		int rc = posix_fallocate(fd, 0, (off_t)size); /* now, rather than by a signal when it is written to */

		if (rc == 0)
			return fd;
		errno = rc;
	}
	log_error("channel", "cannot make %zu bytes of shared memory, %s: %m", size, object);
	shm_unlink(object);
	close(fd);
	return -ENOMEM;
}

/* Creates an object by a name of its own: rdmad-NAME, rdmad-NAME.1, ... */
static int object_create(const char *name, size_t size, char *object, size_t object_size)
{
	for (int i = 0; i < OBJECTS; i++) {
		int fd;

		if (i)
			snprintf(object, object_size, "/rdmad-%s.%d", name, i);
		else
			snprintf(object, object_size, "/rdmad-%s", name);
		fd = object_open(object, size);
		if (fd != -EAGAIN) {
			if (fd < 0)
				object[0] = '\0';
			return fd;
		}
	}
	log_error("channel",
		  "the %d names from /dev/shm/rdmad-%s to %s are taken, by channels or other users: remove them, or "
		  "listen "
		  "without posix_memory",
		  OBJECTS, name, object);
	object[0] = '\0';
	return -EEXIST;
}

static int memory_make(const struct shm_listener *listener, int fds[static WIRE_SHM_FDS], char *object,
		       size_t object_size)
{
	size_t size = channel_shm_size(listener->capacity);
	int rc;

	for (int i = 0; i < WIRE_SHM_FDS; i++)
		fds[i] = -1;
	object[0] = '\0';
	if (listener->options.posix_memory)
		fds[WIRE_SHM_MEMORY] = object_create(listener->name, size, object, object_size);
	else
		fds[WIRE_SHM_MEMORY] = channel_memory_create(size);
	if (fds[WIRE_SHM_MEMORY] < 0)
		return fds[WIRE_SHM_MEMORY];
	for (int i = WIRE_SHM_HEAD_0; i < WIRE_SHM_FDS; i++) {
		fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (fds[i] < 0)
			goto failed;
	}
	return 0;

failed:
	rc = -errno;
	log_error("channel", "cannot make a channel's descriptors: %m");
	channel_shm_close_all(fds);
	if (*object)
		shm_unlink(object);
	return rc;
}

/*
 * Accept
 */
static void client_refuse(const struct shm_listener *listener, int fd, int error)
{
	const struct wire_shm_answer answer = {
		.magic = WIRE_SHM_MAGIC,
		.version = WIRE_SHM_VERSION,
		.error = (uint32_t)error,
		.capacity = error == EMSGSIZE ? listener->capacity : 0,
	};

	local_pass(fd, NULL, 0, &answer, sizeof(answer), NULL, 0);
	local_close(fd);
}

/* The errno that it is to be refused with. */
static int hello_check(const struct shm_listener *listener, const struct wire_shm_hello *hello)
{
	if (hello->magic != WIRE_SHM_MAGIC)
		return EPROTO;
	if (hello->version != WIRE_SHM_VERSION)
		return EPROTONOSUPPORT;
	if (hello->name_len != strlen(listener->name) || memcmp(hello->name, listener->name, hello->name_len) != 0)
		return ENOENT;
	return hello->capacity == listener->capacity ? 0 : EMSGSIZE;
}

/* 0, -EPIPE: the client is gone meanwhile; or why this end cannot. */
static int client_serve(const struct shm_listener *listener, int fd, struct rdmad_channel **out)
{
	const struct wire_shm_answer answer = {
		.magic = WIRE_SHM_MAGIC, .version = WIRE_SHM_VERSION, .capacity = listener->capacity};
	char object[RDMAD_CHANNEL_NAME_MAX + 32];
	struct rdmad_channel *channel;
	int fds[WIRE_SHM_FDS], rc = memory_make(listener, fds, object, sizeof(object));

	if (rc != 0) {
		client_refuse(listener, fd, -rc);
		return rc;
	}
	epoll_ctl(listener->epoll, EPOLL_CTL_DEL, fd, NULL); /* it is the channel's from here on */
	rc = channel_shm_new(fds, fd, 1, listener->capacity, object, &listener->options, &channel);
	if (rc != 0)
		return rc;
	if (local_pass(fd, NULL, 0, &answer, sizeof(answer), fds, WIRE_SHM_FDS) != (ssize_t)sizeof(answer))
		rc = -EPIPE;
	channel_shm_handed(channel);
	if (rc != 0)
		rdmad_channel_close(channel);
	else
		*out = channel;
	return rc;
}

/* -EAGAIN: it has not said what it wants yet. -EPIPE: it was refused, or left. */
static int client_hear(const struct shm_listener *listener, int fd, struct rdmad_channel **out)
{
	struct wire_shm_hello hello;
	ssize_t n = local_recv(fd, &hello, sizeof(hello));
	int error;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	error = n == (ssize_t)sizeof(hello) ? hello_check(listener, &hello) : EPROTO;
	if (error == 0) {
		int rc = client_serve(listener, fd, out);

		return rc == -EAGAIN ? -ENOMEM : rc; /* of mmap(), say: the client's descriptor is closed by now */
	}
	if (n > 0)
		log_warn("channel", "%s refused a client: %s", listener->base.url, strerror(error));
	client_refuse(listener, fd, error);
	return -EPIPE;
}

static void client_drop(struct pending_entry *entry, enum pending_reason reason)
{
	const struct client *client = container_of(entry, struct client, pending);

	if (reason == PENDING_CLOSED)
		local_close(client->fd);
	else
		client_refuse(client->listener, client->fd, ETIMEDOUT);
}

static const struct pending_attr clients = {.limit = PENDING, .stay = PENDING_TIME, .drop = client_drop};

/* 0, -EAGAIN: no client has come; or why none can. */
static int client_accept(struct shm_listener *listener)
{
	int fd = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN};
	struct client *client = listener->client;
	struct ucred peer;

	if (fd < 0) {
		int rc = -errno;

		if (rc == -EAGAIN || rc == -ECONNABORTED || rc == -EINTR)
			return -EAGAIN;
		log_error("channel", "%s cannot accept: %m", listener->base.url);
		return rc;
	}
	if (local_peer(fd, &peer) != 0 || !local_is_own_user(peer.uid)) {
		log_warn("channel", "%s refused a client of another user", listener->base.url);
		client_refuse(listener, fd, EACCES);
		return 0;
	}
	if (epoll_ctl(listener->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
		log_error("channel", "%s cannot watch who comes: %m", listener->base.url);
		client_refuse(listener, fd, ENOMEM);
		return 0;
	}
	pending_has_place(&listener->pending, time_now()); /* the first gives way at once */
	while (pending_has(&client->pending))
		client++;
	client->listener = listener;
	client->fd = fd;
	pending_add(&listener->pending, &client->pending, time_now());
	return 0;
}

/* The first pending client that can be served. -EAGAIN: none. */
static int clients_serve(struct shm_listener *listener, struct rdmad_channel **out)
{
	struct list *pos, *tmp;

	pending_turn(&listener->pending, time_now());
	list_for_each_safe (pos, tmp, &listener->pending.entries) {
		struct client *client = container_of(pos, struct client, pending.node);
		int rc = client_hear(listener, client->fd, out);

		if (rc == -EAGAIN)
			continue;
		pending_remove(&listener->pending, &client->pending);
		if (rc != -EPIPE)
			return rc;
	}
	return -EAGAIN;
}

static int shm_accept(struct rdmad_channel_listener *base, uint64_t until, struct rdmad_channel **out)
{
	struct shm_listener *listener = (struct shm_listener *)base;

	for (;;) {
		struct pollfd ready = {.fd = listener->epoll, .events = POLLIN};
		uint64_t now;
		int rc;

		/* Clients that have spoken go first: they do not give way to new ones. */
		while ((rc = clients_serve(listener, out)) == -EAGAIN && (rc = client_accept(listener)) == 0)
			;
		if (rc != -EAGAIN)
			return rc;
		now = time_now();
		if (now >= until)
			return -ETIMEDOUT;
		channel_poll(&ready, 1, MIN(until - now, PENDING_TIME));
	}
}

static int shm_listener_fd(const struct rdmad_channel_listener *base)
{
	return ((const struct shm_listener *)base)->epoll;
}

/*
 * Listen
 */
static void shm_listener_close(struct rdmad_channel_listener *base)
{
	struct shm_listener *listener = (struct shm_listener *)base;

	local_file_remove(&listener->file);
	pending_close(&listener->pending);
	if (listener->socket >= 0)
		close(listener->socket);
	if (listener->epoll >= 0)
		close(listener->epoll);
	free(listener);
}

static const struct channel_listener_ops shm_listener_ops = {
	.accept = shm_accept,
	.fd = shm_listener_fd,
	.close = shm_listener_close,
};

static struct shm_listener *listener_new(const struct channel_url *url, size_t size,
					 const struct rdmad_channel_options *options)
{
	struct shm_listener *listener = calloc(1, sizeof(*listener));

	if (!listener) {
		log_error("channel", "no memory for a listener");
		return NULL;
	}
	listener->base.ops = &shm_listener_ops;
	listener->options = *options;
	listener->capacity = size;
	listener->socket = listener->epoll = -1;
	pending_init(&listener->pending, &clients);
	snprintf(listener->name, sizeof(listener->name), "%s", url->name);
	snprintf(listener->base.url, sizeof(listener->base.url), "shm://%s", url->name);
	return listener;
}

int channel_shm_listen(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		       struct rdmad_channel_listener **out)
{
	struct shm_listener *listener = listener_new(url, size, options);
	char directory[SHM_DIRECTORY_MAX], parent[SHM_DIRECTORY_MAX];
	struct epoll_event event = {.events = EPOLLIN};
	struct sockaddr_un path;
	int rc;

	if (!listener)
		return -ENOMEM;
	channel_shm_directory(directory);
	rc = channel_shm_path(directory, url->name, &path);
	if (rc != 0)
		goto close_listener;
	/* Make it and the one above it. If that fails, channel_shm_directory_check() says why. */
	snprintf(parent, sizeof(parent), "%s", directory);
	*strrchr(parent, '/') = '\0';
	mkdir(parent, 0700);
	mkdir(directory, 0700);
	rc = channel_shm_directory_check(directory);
	if (rc != 0)
		goto close_listener;
	local_sweep(directory, SWEPT); /* names of listeners that were killed may never be listened on again */
	rc = listener->socket = local_listen(&path, sizeof(path), SOCK_STREAM, LOCAL_UMASK, &listener->file);
	if (rc == -EADDRINUSE || rc == -EEXIST) {
		log_error("channel", "somebody listens on %s already", listener->base.url);
		rc = -EADDRINUSE;
		goto close_listener;
	}
	if (rc < 0) {
		log_error("channel", "cannot listen on %s, %s: %s", listener->base.url, path.sun_path, strerror(-rc));
		goto close_listener;
	}
	listener->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (listener->epoll < 0 || epoll_ctl(listener->epoll, EPOLL_CTL_ADD, listener->socket, &event) != 0) {
		rc = -errno;
		log_error("channel", "cannot make the sockets of %s: %m", listener->base.url);
		goto close_listener;
	}
	*out = &listener->base;
	return 0;

close_listener:
	shm_listener_close(&listener->base);
	return rc;
}
