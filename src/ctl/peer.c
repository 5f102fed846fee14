/* peer.c: rdma_lib from the shell: bytes from one program to another or to many, and strings that all have in the
 * end. */
#include "ctl/ctl.h"
#include "base/local.h"
#include "ctl/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE_DEFAULT MIB
#define PIECE_MOST (64 * MIB)
#define TEXT_MAX 4096u /* of alltoall, with the 0 byte behind it */

static uint64_t piece = PIECE_DEFAULT, peers = 1;
static const char *file, *listen_on, *connect_to;

/* clang-format off */
#define OPTION_LISTEN {"listen", 'l', CTL_CHECKED, &listen_on, "ADDRESS", \
	"be connected to: HOST:PORT, tcp://, rdma:// or unix:///PATH", .check = ctl_peer_check_address}
#define OPTION_CONNECT {"connect", 'c', CTL_CHECKED, &connect_to, "ADDRESS", "connect to one that listens", \
	.check = ctl_peer_check_address}
#define OPTION_FILE(help) {"file", 'f', CTL_TEXT, &file, "FILE", help, .choices = "@file"}
#define OPTION_SIZE {"size", 's', CTL_SIZE, &piece, "SIZE", "bytes of a message at most; default 1M", \
	.min = 1, .max = PIECE_MOST}
#define OPTION_PEERS {"peers", 'n', CTL_NUMBER, &peers, "N", "wait for so many; default 1", .min = 1, .max = 1024}
/* clang-format on */

static const struct ctl_option send_options[] = {
	OPTION_CONNECT, OPTION_LISTEN, OPTION_FILE("send a file; default: standard input"), OPTION_SIZE, {NULL}};

static const struct ctl_option recv_options[] = {
	OPTION_LISTEN, OPTION_CONNECT, OPTION_FILE("write to a file; default: standard output"), {NULL}};

static const struct ctl_option broadcast_options[] = {
	OPTION_LISTEN, OPTION_PEERS, OPTION_FILE("send a file; default: standard input"), OPTION_SIZE, {NULL}};

static const struct ctl_option alltoall_options[] = {OPTION_LISTEN, OPTION_CONNECT, OPTION_PEERS, {NULL}};

/* The context of one command, and how much it moved. */
struct peer_run {
	rdma_context *ctx;
	const char *address;
	int fd; /* read or written */
	char *buffer;
	size_t room;
	uint64_t bytes, messages, begin;
};

int ctl_peer_check_address(const char *text)
{
	struct address address;

	return address_parse(text, &address);
}

int ctl_peer_fail(const char *address)
{
	int error = rdma_get_errno();

	ctl_say_of(address, rdma_get_error());
	if (error == ENOENT) /* the path of a UNIX socket, or where it was to be */
		return connect_to ? CTL_UNREACHABLE : CTL_FAILED;
	return (int)ctl_exit_of(-error);
}

/* Without the hints of ctl_fail(), which are about an rdmad and its store. */
static int fail_file(int error)
{
	ctl_say("%s: %s: %s", ctl_command_name(), file ? file : "-", strerror(-error));
	return CTL_FAILED;
}

void ctl_peer_options(rdma_options *options)
{
	*options = (rdma_options){
		.require_rdma = ctl.require_rdma,
		.require_encryption = ctl.require_encryption,
		.poll_us = ctl.poll == TIME_NEVER ? UINT64_MAX / TIME_US : ctl.poll / TIME_US,
		.no_poll = ctl.poll_given && ctl.poll == 0,
		.key_file = ctl.key,
		.munge = ctl.munge,
		.server_user = ctl.server_user,
	};
	if (ctl.timeout != TIME_NEVER)
		options->timeout_ms = options->connect_timeout_ms = MAX(ctl.timeout / TIME_MS, 1ull);
}

/*
 * Connections
 */

/* Set the options, with a progress thread, so that the peer hears of this end while input or output is slow. */
static void connection_options(rdma_options *options)
{
	ctl_peer_options(options);
	options->progress_thread = true;
}

static struct local_file socket_file;

/* The library's waits do not end by a signal; the action that this one takes back does the rest. */
static void remove_socket(int number)
{
	local_file_remove(&socket_file);
	raise(number);
}

/* Remove the file of a UNIX socket when a signal ends this process. */
static void remove_socket_at_end(const char *path)
{
	static const int numbers[] = {SIGHUP, SIGINT, SIGPIPE, SIGTERM};
	struct sigaction action = {.sa_handler = remove_socket, .sa_flags = (int)SA_RESETHAND}, before;

	local_file_of(path, &socket_file);
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
			sigaction(numbers[i], &action, NULL);
}

static int listen_for_peers(struct peer_run *t, const struct address *address)
{
	rdma_options options;

	connection_options(&options);
	options.max_peers = (uint32_t)peers;
	t->ctx = rdma_init_options(t->address, address->path ? 0 : address->port, true, &options);
	if (!t->ctx)
		return ctl_peer_fail(t->address);
	if (address->path)
		remove_socket_at_end(address->host);
	if (!ctl.quiet && !ctl.json) {
		if (address->path)
			ctl_say("listening on %s", t->address);
		else
			ctl_say("listening on port %d", rdma_port(t->ctx));
	}
	for (uint64_t i = 0; i < peers; i++) {
		int index = rdma_accept_peer(t->ctx);

		if (index < 0)
			return ctl_peer_fail(t->address);
		ctl_say_transport(t->address, rdma_transport(t->ctx, index));
	}
	return CTL_OK;
}

static int choose_address(struct peer_run *t)
{
	if (!listen_on == !connect_to)
		return ctl_usage_error("%s: either --listen or --connect", ctl_command_name());
	t->address = listen_on ? listen_on : connect_to;
	t->fd = -1;
	return CTL_OK;
}

static int join_peers(struct peer_run *t)
{
	struct address address;
	rdma_options options;
	int rc = CTL_OK;

	if (address_parse(t->address, &address) != 0)
		return ctl_usage_hint();
	if (listen_on) {
		rc = listen_for_peers(t, &address);
	} else {
		connection_options(&options);
		t->ctx = rdma_init_options(NULL, 0, false, &options);
		if (!t->ctx || rdma_connect_peer(t->ctx, t->address, address.path ? 0 : address.port) < 0)
			rc = ctl_peer_fail(t->address);
		else
			ctl_say_transport(t->address, rdma_transport(t->ctx, 0));
	}
	t->begin = time_now();
	return rc;
}

static void close_run(struct peer_run *t)
{
	rdma_cleanup(t->ctx);
	free(t->buffer);
	if (t->fd > STDERR_FILENO)
		close(t->fd);
}

static int print_report(const struct peer_run *t, const char *transport)
{
	double seconds = (double)(time_now() - t->begin) / 1e9;
	char text[32];

	if (ctl.json)
		return ctl_json_print(json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f}", "command", ctl_command_name(),
						"address", t->address, "transport", transport, "bytes",
						(json_int_t)t->bytes, "messages", (json_int_t)t->messages,
						"elapsed_seconds", seconds, "bytes_per_second",
						seconds > 0 ? (double)t->bytes / seconds : 0.0));
	if (!ctl.quiet)
		ctl_say("%llu byte%s in %llu message%s, %s/s", (unsigned long long)t->bytes, CTL_S(t->bytes),
			(unsigned long long)t->messages, CTL_S(t->messages),
			units_human_size(seconds > 0 ? (double)t->bytes / seconds : 0, text));
	return CTL_OK;
}

/*
 * Sending: pieces of what is read, then a message of no bytes, which the other end answers by one when it has written
 * all.
 */
static int open_input(struct peer_run *t)
{
	t->fd = file && strcmp(file, "-") != 0 ? open(file, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (t->fd < 0)
		return fail_file(-errno);
	t->room = piece;
	t->buffer = malloc(t->room);
	return t->buffer ? CTL_OK : fail_file(-ENOMEM);
}

/* Read as much as a piece holds, unless the input ends. */
static ssize_t read_piece(struct peer_run *t)
{
	size_t have = 0;

	while (have < t->room) {
		ssize_t n = read(t->fd, t->buffer + have, t->room - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

static int send_all(struct peer_run *t)
{
	ssize_t n;
	int rc;

	do {
		bool sent;

		n = read_piece(t);
		if (n < 0)
			return fail_file((int)n);
		sent = peers == 1 ? rdma_send(t->ctx, 0, t->buffer, (size_t)n) >= 0
				  : rdma_broadcast(t->ctx, t->buffer, (size_t)n) == (int)peers;
		rc = sent ? CTL_OK : ctl_peer_fail(t->address);
		t->bytes += (uint64_t)n;
		t->messages += n > 0;
	} while (rc == CTL_OK && n > 0);
	for (uint64_t i = 0; rc == CTL_OK && i < peers; i++)
		if (rdma_recv(t->ctx, (int)i, t->buffer, t->room) < 0)
			rc = ctl_peer_fail(t->address);
	return rc;
}

/* Move a file from or to the peers. It is opened before they connect. */
static int run_file(int (*open_file)(struct peer_run *t), int (*work)(struct peer_run *t))
{
	struct peer_run t = {0};
	int rc = choose_address(&t);

	if (rc == CTL_OK)
		rc = open_file(&t);
	if (rc == CTL_OK)
		rc = join_peers(&t);
	if (rc == CTL_OK)
		rc = work(&t);
	if (rc == CTL_OK)
		rc = print_report(&t, rdma_transport(t.ctx, 0));
	close_run(&t);
	return rc;
}

static int command_send(const struct ctl_arguments *arguments)
{
	return run_file(open_input, send_all);
}

static int command_broadcast(const struct ctl_arguments *arguments)
{
	return run_file(open_input, send_all);
}

/*
 * Receiving
 */
static int write_to_fd(int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t n = write(fd, data, length);

		if (n < 0 && errno != EINTR)
			return -errno;
		data += MAX(n, 0);
		length -= (size_t)MAX(n, 0);
	}
	return 0;
}

static int receive_all(struct peer_run *t)
{
	int64_t length;
	char *grown;
	int rc;

	do {
		length = rdma_probe(t->ctx, 0,
				    ctl.timeout == TIME_NEVER ? UINT64_MAX : MAX(ctl.timeout / TIME_MS, 1ull));
		if (length < 0 && rdma_get_errno() == EAGAIN)
			return ctl_fail(-ETIMEDOUT, "nothing came for as long as --timeout says", "%s %s",
					ctl_command_name(), t->address);
		if (length < 0)
			return ctl_peer_fail(t->address);
		if (length > (int64_t)PIECE_MOST)
			return ctl_fail(-EMSGSIZE, "a message is longer than rdmactl sends them", "%s %s",
					ctl_command_name(), t->address);
		grown = (size_t)length > t->room ? realloc(t->buffer, (size_t)length) : t->buffer;
		if (length > 0 && !grown)
			return ctl_fail(-ENOMEM, strerror(ENOMEM), "%s %s", ctl_command_name(), t->address);
		t->room = MAX(t->room, (size_t)length);
		t->buffer = grown;
		if (rdma_recv(t->ctx, 0, t->buffer, t->room) < 0)
			return ctl_peer_fail(t->address);
		if (t->fd == STDOUT_FILENO && ctl_at_terminal()) {
			ctl_put_value(t->buffer, (size_t)length);
			rc = ctl_flush() == 0 ? 0 : -errno;
		} else {
			rc = write_to_fd(t->fd, t->buffer, (size_t)length);
		}
		if (rc != 0)
			return fail_file(rc);
		t->bytes += (uint64_t)length;
		t->messages += length > 0;
	} while (length > 0);
	return rdma_send(t->ctx, 0, "", 0) < 0 ? ctl_peer_fail(t->address) : CTL_OK;
}

static int open_output(struct peer_run *t)
{
	bool to_file = file && strcmp(file, "-") != 0;

	if (ctl.json && !to_file)
		return ctl_usage_error(
			"peer recv: standard output cannot take both the bytes and --json; give a --file");
	t->fd = to_file ? open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : STDOUT_FILENO;
	return t->fd < 0 ? fail_file(-errno) : CTL_OK;
}

static int command_recv(const struct ctl_arguments *arguments)
{
	return run_file(open_output, receive_all);
}

/*
 * The strings of all members
 */
static int exchange_strings(struct peer_run *t, const char *text)
{
	size_t members = listen_on ? (size_t)peers + 1 : RDMACTL_PEERS_MAX;

	t->buffer = malloc(members * (TEXT_MAX + 2));
	if (!t->buffer)
		return ctl_fail(-ENOMEM, strerror(ENOMEM), "%s", ctl_command_name());
	/* A peer that has gone is not counted any more, and --peers were to take part. */
	if (listen_on && rdma_peers(t->ctx) < (int)peers) {
		ctl_say("%s %s: a peer has gone before all were there", ctl_command_name(), t->address);
		return CTL_UNREACHABLE;
	}
	if (rdma_sequential_alltoall(t->ctx, text, t->buffer, TEXT_MAX) < 0)
		return ctl_peer_fail(t->address);
	if (ctl.json) {
		json_t *o = json_pack("{s:s, s:s}", "command", ctl_command_name(), "address", t->address);

		ctl_json_set_bytes(o, "strings", t->buffer, strlen(t->buffer));
		return ctl_json_print(o);
	}
	ctl_put_value(t->buffer, strlen(t->buffer));
	putchar('\n');
	return CTL_OK;
}

static int command_alltoall(const struct ctl_arguments *arguments)
{
	struct peer_run t = {0};
	int rc = choose_address(&t);

	if (rc == CTL_OK && strlen(arguments->text[0]) >= TEXT_MAX)
		rc = ctl_usage_error("peer alltoall: a text has less than %u bytes", TEXT_MAX);
	if (rc == CTL_OK)
		rc = join_peers(&t);
	if (rc == CTL_OK)
		rc = exchange_strings(&t, arguments->text[0]);
	close_run(&t);
	return rc;
}

const struct ctl_command ctl_peer_commands[] = {
	{"peer send", command_send, "", "send a file or standard input to a program that receives", send_options, 0, 0},
	{"peer recv", command_recv, "", "receive what another sends, into a file or to standard output", recv_options,
	 0, 0},
	{"peer broadcast", command_broadcast, "", "send a file or standard input to many", broadcast_options, 0, 0},
	{"peer alltoall", command_alltoall, "TEXT", "print the texts of all who take part", alltoall_options, 1, 1},
	{NULL},
};
