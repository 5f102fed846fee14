/* shm_open.c: a client of shared memory: it says what it wants and takes the memory. */
#include "channel/shm.h"
#include "engine/engine.h"

#include <poll.h>
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
	return log_fail(-ENOENT, "channel",
			"nobody listens on shm://%s for user %lu: a name is of one user of this machine",
			opening->url->name, (unsigned long)geteuid());
}

static int opening_greet(const struct opening *opening)
{
	struct wire_shm_hello hello = {
		.magic = WIRE_SHM_MAGIC,
		.version = WIRE_SHM_VERSION,
		.name_len = (uint32_t)strlen(opening->url->name),
		.capacity = opening->size,
	};
	struct ucred peer;

	if (local_peer(opening->socket, &peer) != 0 || !local_is_own_user(peer.uid))
		return log_fail(-EACCES, "channel", "the listener on shm://%s is of another user", opening->url->name);
	memcpy(hello.name, opening->url->name, hello.name_len);
	/* where the listener has closed, its refusal may be there to be read */
	if (send(opening->socket, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello) || errno == EPIPE)
		return 0;
	return nobody_listens(opening);
}

/* Wait until the listener has accepted. */
static int answer_await(const struct opening *opening)
{
	struct pollfd socket = {.fd = opening->socket, .events = POLLIN};

	for (;;) {
		uint64_t now = time_now();

		if (channel_poll(&socket, 1, opening->until - MIN(opening->until, now)) > 0)
			return 0;
		if (now < opening->until)
			continue;
		return log_fail(-ETIMEDOUT, "channel", "the listener on shm://%s did not accept in time",
				opening->url->name);
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

static int answer_receive(const struct opening *opening, int fds[static WIRE_SHM_FDS])
{
	struct wire_shm_answer answer = {.magic = 0};
	int count;
	ssize_t n = local_take(opening->socket, &answer, sizeof(answer), fds, WIRE_SHM_FDS, &count);

	if (n <= 0)
		return log_fail(-ENOENT, "channel", "the listener on shm://%s closed before it accepted",
				opening->url->name);
	if (n != (ssize_t)sizeof(answer) || answer.magic != WIRE_SHM_MAGIC)
		log_error("channel", "what answers on shm://%s is no channel", opening->url->name);
	else if (answer.version != WIRE_SHM_VERSION)
		return opening_refused(opening, EPROTONOSUPPORT, 0);
	else if (answer.error)
		return opening_refused(opening, answer.error < 4096 ? (int)answer.error : EPROTO, answer.capacity);
	else if (count != WIRE_SHM_FDS)
		log_error("channel", "shm://%s: %d of %d descriptors came: has this process too many open?",
			  opening->url->name, MAX(count, 0), WIRE_SHM_FDS);
	else
		return 0;
	return -EPROTO;
}

/* Where it answers 0, the socket and the descriptors are the channel's. */
static int opening_finish(const struct opening *opening, struct rdmad_channel **out)
{
	int fds[WIRE_SHM_FDS] = {-1, -1, -1, -1, -1}, rc = opening_greet(opening);

	if (rc == 0)
		rc = answer_await(opening);
	if (rc == 0)
		rc = answer_receive(opening, fds);
	if (rc != 0) {
		channel_shm_close_all(fds);
		close(opening->socket);
		return rc;
	}
	rc = channel_shm_new(fds, opening->socket, 0, opening->size, "", opening->options, out);
	if (rc != 0)
		return rc == -EAGAIN ? -ENOMEM : rc; /* of mmap(), say */
	channel_shm_handed(*out);
	return 0;
}

int channel_shm_open(const struct channel_url *url, size_t size, const struct rdmad_channel_options *options,
		     struct rdmad_channel **out)
{
	struct opening opening = {.url = url, .size = size, .options = options};
	char directory[SHM_DIRECTORY_MAX];
	struct engine_options filled;
	struct sockaddr_un path;
	int rc;

	engine_options_from(&options->common, &filled);
	opening.until = time_after(time_now(), filled.connect_timeout);
	channel_shm_directory(directory);
	rc = channel_shm_path(directory, url->name, &path);
	if (rc != 0)
		return rc;
	if (access(directory, F_OK) != 0 && errno == ENOENT)
		return nobody_listens(&opening);
	rc = channel_shm_directory_check(directory);
	if (rc != 0)
		return rc;
	do {
		uint64_t left = opening.until - MIN(opening.until, time_now());

		/* Waits where as many clients as the system allows wait already. */
		rc = opening.socket = local_connect(path.sun_path, left);
		if (rc == -ENOENT || rc == -ECONNREFUSED)
			return nobody_listens(&opening);
		if (rc < 0) {
			log_error("channel", "cannot connect to shm://%s, %s: %s", url->name, path.sun_path,
				  strerror(-rc));
			return rc == -EAGAIN ? -ETIMEDOUT : rc;
		}
		rc = opening_finish(&opening, out);
	} while (rc == -EAGAIN && poll(NULL, 0, PAUSE) == 0);
	return rc;
}
