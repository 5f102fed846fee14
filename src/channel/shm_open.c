/* shm_open.c: a client of shared memory: it says what it wants and takes the memory. */
#include "channel/shm.h"
#include "engine/engine.h"

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#define PAUSE 10 /* ms, before a listener that had no place is asked again */

struct opening {
	const struct channel_url *url;
	size_t size;
	const struct rdmad_channel_options *options;
	uint64_t until;
	int socket;
};

static int nobody_listens(const struct opening *opening)
{
	log_error("channel", "nobody listens on shm://%s for user %lu: a name is of one user of this machine",
		  opening->url->name, (unsigned long)geteuid());
	return -ENOENT;
}

/* Waits where as many clients as the system allows wait already. */
static int opening_connect(const struct opening *opening, const struct sockaddr_un *path)
{
	uint64_t left = opening->until - MIN(opening->until, time_now());
	const struct timeval time = {.tv_sec = (time_t)(left / TIME_S),
				     .tv_usec = (suseconds_t)(left % TIME_S / 1000) + 1};

	setsockopt(opening->socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
	if (connect(opening->socket, (const struct sockaddr *)path, sizeof(*path)) == 0)
		return 0;
	if (errno == ENOENT || errno == ECONNREFUSED)
		return nobody_listens(opening);
	log_error("channel", "cannot connect to shm://%s, %s: %m", opening->url->name, path->sun_path);
	return errno == EAGAIN ? -ETIMEDOUT : -errno;
}

static int opening_greet(const struct opening *opening)
{
	struct wire_shm_hello hello = {
		.magic = WIRE_SHM_MAGIC,
		.version = WIRE_SHM_VERSION,
		.name_len = (uint32_t)strlen(opening->url->name),
		.capacity = opening->size,
	};

	if (!channel_shm_user_may(opening->socket)) {
		log_error("channel", "the listener on shm://%s is of another user", opening->url->name);
		return -EACCES;
	}
	memcpy(hello.name, opening->url->name, hello.name_len);
	/* where the listener has closed, its refusal may be there to be read */
	if (send(opening->socket, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) || errno == EPIPE)
		return 0;
	return nobody_listens(opening);
}

/* Until the listener has accepted. */
static int answer_await(const struct opening *opening)
{
	struct pollfd socket = {.fd = opening->socket, .events = POLLIN};

	for (;;) {
		uint64_t now = time_now();

		if (channel_poll(&socket, 1, opening->until - MIN(opening->until, now)) > 0)
			return 0;
		if (now < opening->until)
			continue;
		log_error("channel", "the listener on shm://%s did not accept in time", opening->url->name);
		return -ETIMEDOUT;
	}
}

static const struct refusal {
	int error;
	const char *text;
} refusals[] = {
	{EACCES, "it is another user's"},
	{EMSGSIZE, "its rings have another size"},
	{EPROTONOSUPPORT, "it has another version of the memory's layout"},
	{ENOENT, "it has another name"},
	{EPROTO, "it did not understand what was asked for"},
	{ETIMEDOUT, "too many clients came at once, and this one was slow"},
};

/* -EAGAIN: many came at once, and this client gave way before it had spoken; there is time to come again. */
static int opening_refused(const struct opening *opening, int error, uint64_t capacity)
{
	const char *text = strerror(error);
	char size[64];

	if (error == ETIMEDOUT && time_now() < opening->until)
		return -EAGAIN;
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (refusals[i].error == error)
			text = refusals[i].text;
	if (error == EMSGSIZE && capacity) {
		snprintf(size, sizeof(size), "its rings have %llu bytes", (unsigned long long)capacity);
		text = size;
	}
	log_error("channel", "the listener on shm://%s refused rings of %zu bytes: %s", opening->url->name,
		  opening->size, text);
	return -error;
}

/* The descriptors that came, all of which are taken, -1 where there is none. How many. */
static int take_fds(struct msghdr *message, int fds[static WIRE_SHM_FDS])
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	size_t n;

	for (int i = 0; i < WIRE_SHM_FDS; i++)
		fds[i] = -1;
	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
		return 0;
	n = MIN((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), (size_t)WIRE_SHM_FDS);
	memcpy(fds, CMSG_DATA(header), n * sizeof(int));
	return (int)n;
}

static int answer_receive(const struct opening *opening, int fds[static WIRE_SHM_FDS])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(WIRE_SHM_FDS * sizeof(int))];
	} control; /* of which CMSG_LEN: in its padding there would be room for one more descriptor */
	struct wire_shm_answer answer = {.magic = 0};
	struct iovec piece = {.iov_base = &answer, .iov_len = sizeof(answer)};
	struct msghdr message = {.msg_iov = &piece,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = CMSG_LEN(WIRE_SHM_FDS * sizeof(int))};
	ssize_t n = recvmsg(opening->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int count;

	if (n <= 0) {
		log_error("channel", "the listener on shm://%s closed before it accepted", opening->url->name);
		return -ENOENT;
	}
	count = take_fds(&message, fds);
	if (n != (ssize_t)sizeof(answer) || answer.magic != WIRE_SHM_MAGIC)
		log_error("channel", "what answers on shm://%s is no channel", opening->url->name);
	else if (answer.version != WIRE_SHM_VERSION)
		return opening_refused(opening, EPROTONOSUPPORT, 0);
	else if (answer.error)
		return opening_refused(opening, answer.error < 4096 ? (int)answer.error : EPROTO, answer.capacity);
	else if (count != WIRE_SHM_FDS || message.msg_flags & MSG_CTRUNC)
		log_error("channel", "shm://%s: %d of %d descriptors came: has this process too many open?",
			  opening->url->name, count, WIRE_SHM_FDS);
	else
		return 0;
	return -EPROTO;
}

/* Takes the socket where it answers 0. */
static int opening_finish(const struct opening *opening, const struct sockaddr_un *path, struct rdmad_channel **out)
{
	int fds[WIRE_SHM_FDS] = {-1, -1, -1, -1, -1}, rc = opening_connect(opening, path);
	struct rdmad_channel *channel;

	if (rc == 0)
		rc = opening_greet(opening);
	if (rc == 0)
		rc = answer_await(opening);
	if (rc == 0)
		rc = answer_receive(opening, fds);
	if (rc != 0) {
		channel_shm_close_all(fds);
		close(opening->socket);
		return rc;
	}
	rc = channel_shm_new(fds, opening->socket, 0, opening->size, "", opening->options, &channel);
	if (rc != 0)
		return rc == -EAGAIN ? -ENOMEM : rc; /* of mmap(), say */
	channel_shm_handed(channel);
	*out = channel;
	return 0;
}

int channel_shm_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out)
{
	struct opening opening = {.url = url, .size = size, .options = options};
	char directory[SHM_DIRECTORY_MAX];
	struct engine_options filled;
	struct sockaddr_un path;
	int fd, rc;

	engine_options_from(&options->common, &filled);
	opening.until = time_after(time_now(), filled.connect_timeout);
	channel_shm_directory(directory);
	rc = channel_shm_path(directory, url->name, &path);
	if (rc != 0)
		return rc;
	if (access(directory, F_OK) != 0 && errno == ENOENT)
		return nobody_listens(&opening);
	fd = channel_shm_directory_open(directory);
	if (fd < 0)
		return fd;
	close(fd);
	do {
		opening.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (opening.socket < 0) {
			rc = -errno;
			log_error("channel", "cannot make a socket: %m");
			return rc;
		}
		rc = opening_finish(&opening, &path, out);
	} while (rc == -EAGAIN && poll(NULL, 0, PAUSE) == 0);
	return rc;
}
