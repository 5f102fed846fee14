/* channel.c: channels from the shell: listening, bytes into one and out of one, and both at once as nc(1) does. */
#include "ctl/channel/bytes.h"
#include "ctl/ctl.h"
#include "rdmad/channel.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SIZE_DEFAULT (256 * KIB)

static uint64_t ring_size = SIZE_DEFAULT, most, clients_wanted;
static const char *device, *file;
static bool be_server, line;

/* clang-format off */
#define OPTION_SIZE {"size", 's', CTL_SIZE, &ring_size, "SIZE", \
	"bytes of each ring, the same at both ends; default 256K", \
	.min = RDMAD_CHANNEL_SIZE_MIN, .max = RDMAD_CHANNEL_SIZE_MAX}
#define OPTION_DEVICE {"device", 0, CTL_TEXT, &device, "DEVICE[:PORT]", "the RDMA device to use"}
#define OPTION_LISTEN {"listen", 'l', CTL_FLAG, &be_server, NULL, "be the one who listens, and accept one client"}
/* clang-format on */

static const struct ctl_option open_options[] = {OPTION_SIZE, OPTION_DEVICE, {NULL}};

static const struct ctl_option listen_options[] = {
	OPTION_SIZE,
	OPTION_DEVICE,
	{"count", 'c', CTL_NUMBER, &clients_wanted, "N", "end after N clients; default: go on", .min = 1,
	 .max = UINT32_MAX},
	{NULL},
};

static const struct ctl_option push_options[] = {
	OPTION_SIZE,
	OPTION_DEVICE,
	OPTION_LISTEN,
	{"file", 'f', CTL_TEXT, &file, "FILE", "put the bytes of a file; \"-\" is standard input", .choices = "@file"},
	{NULL},
};

static const struct ctl_option pop_options[] = {
	OPTION_SIZE,
	OPTION_DEVICE,
	OPTION_LISTEN,
	{"count", 'c', CTL_SIZE, &most, "SIZE", "so many bytes; default: until the other end closes", .min = 1,
	 .max = INT64_MAX},
	{"line", 0, CTL_FLAG, &line, NULL, "one line, up to its line feed"},
	{NULL},
};

static const struct ctl_option pipe_options[] = {
	OPTION_SIZE,
	OPTION_DEVICE,
	OPTION_LISTEN,
	{"count", 'c', CTL_SIZE, &most, "SIZE", "end when so many bytes came", .min = 1, .max = INT64_MAX},
	{NULL},
};

/*
 * Opening
 */
static void channel_options(struct rdmad_channel_options *options)
{
	*options = (struct rdmad_channel_options){.device = device};
	ctl_library_options(&options->common);
	if (ctl.timeout != TIME_NEVER)
		options->common.connect_timeout_us = ctl.timeout / TIME_US;
}

static int fail_channel(int error, const char *url)
{
	return ctl_fail_channel(error, ctl_channel_fault, url);
}

static int accept_client(struct rdmad_channel_listener *listener, struct rdmad_channel **out)
{
	uint64_t since = time_now();
	int rc, stop = 0;

	do
		rc = rdmad_channel_accept(listener, CTL_SLICE_US, out);
	while (rc == -ETIMEDOUT && (stop = ctl_channel_go_on(since)) == 0);
	return stop ? stop : rc;
}

static void say_channel(const char *url, const struct rdmad_channel *channel)
{
	struct rdmad_channel_info info;

	if (ctl.quiet || ctl.json)
		return;
	rdmad_channel_info(channel, &info);
	ctl_say("%s: transport %s%s, with %s", url, info.transport, info.relayed ? " through rdmad" : "", info.peer);
}

/* Say the URL, with the port that was taken where 0 was asked for. */
static void say_listening(const struct rdmad_channel_listener *listener)
{
	if (!ctl.quiet && !ctl.json)
		ctl_say("listening on %s", rdmad_channel_listener_url(listener));
}

/* Be the client, or with --listen the server of one. An exit status. */
static int open_channel(const char *url, struct rdmad_channel **out)
{
	struct rdmad_channel_options options;
	struct rdmad_channel_listener *listener;
	int rc;

	channel_options(&options);
	ctl_catch_interrupt();
	if (!be_server) {
		rc = rdmad_channel_open(url, ring_size, &options, out);
	} else {
		rc = rdmad_channel_listen(url, ring_size, &options, &listener);
		if (rc == 0) {
			say_listening(listener);
			rc = accept_client(listener, out);
			rdmad_channel_listener_close(listener);
		}
	}
	if (rc == -EINTR)
		return CTL_INTERRUPTED;
	if (rc != 0)
		return fail_channel(rc, url);
	say_channel(url, *out);
	return CTL_OK;
}

static json_t *channel_json(const char *url, const struct rdmad_channel *channel)
{
	struct rdmad_channel_info info;

	rdmad_channel_info(channel, &info);
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "command", ctl_command_name(), "channel",
			 url, "transport", info.transport, "peer", info.peer, "relayed", info.relayed, "capacity_bytes",
			 (json_int_t)info.capacity, "put_bytes", (json_int_t)info.bytes_put, "got_bytes",
			 (json_int_t)info.bytes_got, "flushes", (json_int_t)info.flushes, "sleeps",
			 (json_int_t)info.sleeps);
}

/* The role of this end; a channel that the other end closes has ended well for a receiver. */
enum role { SENDER, RECEIVER };

/* Close a channel: 0, or how it failed. */
static int end_channel(struct rdmad_channel *channel, int error, enum role role)
{
	int rc = rdmad_channel_close(channel);

	if (error == 0 || (error == -EPIPE && role == RECEIVER))
		error = rc == -EPIPE && role == RECEIVER ? 0 : rc;
	return error;
}

/* Print `o`, which it takes, if the channel ended well, and else say why it failed. An exit status. */
static int print_end(const char *url, int error, json_t *o)
{
	if (error == 0) {
		if (o)
			ctl_json_print(o);
		return ctl_json_end(CTL_OK); /* now, as a listener goes on */
	}
	json_decref(o);
	return error == -EINTR ? CTL_INTERRUPTED : fail_channel(error, url);
}

static int close_channel(const char *url, struct rdmad_channel *channel, int error, enum role role, json_t *o)
{
	return print_end(url, end_channel(channel, error, role), o);
}

/*
 * Putting
 */
static int command_push(const struct ctl_arguments *arguments)
{
	const char *url = arguments->text[0];
	struct rdmad_channel *channel;
	int in = STDIN_FILENO, rc;

	if (arguments->count > 1 && file)
		return ctl_usage_error("channel push: either BYTES or --file");
	if (!be_server && strncmp(url, "meet://", 7) == 0 && ctl_file_ends(url, "/echo"))
		return ctl_usage_error("channel push: what it puts into echo nobody gets: that is for channel pipe");
	if (file && strcmp(file, "-") != 0)
		in = open(file, O_RDONLY | O_CLOEXEC);
	if (in < 0) {
		ctl_say("channel push: %s: %m", file);
		return CTL_FAILED;
	}
	rc = open_channel(url, &channel);
	if (rc == CTL_OK) {
		rc = arguments->count > 1 ? ctl_channel_put(channel, arguments->text[1], strlen(arguments->text[1]))
					  : ctl_channel_put_stream(channel, in);
		if (rc == 0)
			rc = ctl_channel_flush(channel);
		if (rc == 0)
			rc = ctl_channel_await_got(channel);
		rc = close_channel(url, channel, rc, SENDER, ctl.json ? channel_json(url, channel) : NULL);
	}
	if (in != STDIN_FILENO)
		close(in);
	return rc;
}

/*
 * Taking
 */
static json_t *received_json(const char *url, const struct rdmad_channel *channel, const struct ctl_sink *sink)
{
	json_t *o = channel_json(url, channel);

	if (!sink->drop)
		ctl_json_set_bytes(o, "bytes", sink->kept ? sink->kept : "", sink->count);
	return o;
}

static int command_pop(const struct ctl_arguments *arguments)
{
	const char *url = arguments->text[0];
	struct rdmad_channel *channel;
	struct ctl_sink sink = {.most = most, .line = line};
	char words[80];
	int rc = open_channel(url, &channel);

	if (rc != CTL_OK)
		return rc;
	rc = ctl_sink_fill(channel, &sink);
	if (rc == -EPIPE && (most || (line && !sink.count))) {
		rdmad_channel_close(channel);
		snprintf(words, sizeof(words), "the other end closed the channel after %llu byte%s",
			 (unsigned long long)sink.count, CTL_S(sink.count));
		rc = ctl_fail_channel(rc, words, url);
	} else {
		rc = close_channel(url, channel, rc, RECEIVER, ctl.json ? received_json(url, channel, &sink) : NULL);
	}
	free(sink.kept);
	return rc;
}

static int command_pipe(const struct ctl_arguments *arguments)
{
	const char *url = arguments->text[0];
	struct rdmad_channel *channel;
	int rc;

	if (ctl.json)
		return ctl_usage_error("channel pipe: standard output cannot take both the bytes and --json");
	rc = open_channel(url, &channel);
	if (rc != CTL_OK)
		return rc;
	return close_channel(url, channel, ctl_channel_pipe(channel, most), RECEIVER, NULL);
}

/*
 * Listening
 */

/* Serve one client after the other: what they send goes to standard output. It is said if a channel failed; others may
 * come. */
static int serve_clients(struct rdmad_channel_listener *listener)
{
	const char *url = rdmad_channel_listener_url(listener);
	struct rdmad_channel *channel;
	int status = CTL_OK;

	for (uint64_t n = 0; (!clients_wanted || n < clients_wanted) && status == CTL_OK; n++) {
		struct ctl_sink sink = {.drop = ctl.json};
		int rc = accept_client(listener, &channel);
		json_t *o;

		if (rc != 0)
			return print_end(url, rc, NULL);
		say_channel(url, channel);
		rc = ctl_sink_fill(channel, &sink);
		o = ctl.json ? received_json(url, channel, &sink) : NULL;
		rc = end_channel(channel, rc, RECEIVER);
		status = print_end(url, rc, o);
		ctl_flush();
		if (rc != 0 && rc != -EINTR && !ctl_channel_fault)
			status = CTL_OK;
	}
	return status;
}

static int command_listen(const struct ctl_arguments *arguments)
{
	struct rdmad_channel_options options;
	struct rdmad_channel_listener *listener;
	int rc;

	channel_options(&options);
	ctl_catch_interrupt();
	rc = rdmad_channel_listen(arguments->text[0], ring_size, &options, &listener);
	if (rc != 0)
		return fail_channel(rc, arguments->text[0]);
	say_listening(listener);
	rc = serve_clients(listener);
	rdmad_channel_listener_close(listener);
	return rc;
}

static int command_open(const struct ctl_arguments *arguments)
{
	uint64_t begin = time_now();
	struct rdmad_channel *channel;
	int rc = open_channel(arguments->text[0], &channel);
	json_t *o = NULL;

	if (rc != CTL_OK)
		return rc;
	if (ctl.json) {
		o = channel_json(arguments->text[0], channel);
		json_object_set_new(o, "open_us", json_real((double)(time_now() - begin) / 1e3));
	} else {
		printf("open after %.1f ms\n", (double)(time_now() - begin) / 1e6);
	}
	return close_channel(arguments->text[0], channel, 0, RECEIVER, o);
}

const struct ctl_command ctl_channel_commands[] = {
	{"channel listen", command_listen, "URL", "listen, and write what clients send to standard output",
	 listen_options, 1, 1},
	{"channel open", command_open, "URL", "open a channel, say how it goes, and close it", open_options, 1, 1},
	{"channel push", command_push, "URL [BYTES]", "put bytes, those of a file or standard input into a channel",
	 push_options, 1, 2},
	{"channel pop", command_pop, "URL", "write what comes out of a channel to standard output", pop_options, 1, 1},
	{"channel pipe", command_pipe, "URL", "join standard input and output to a channel", pipe_options, 1, 1},
	{NULL},
};
