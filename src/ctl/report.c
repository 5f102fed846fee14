/* report.c: messages about failures: the operation, the cause, the exit status, and the next step. */
#include "ctl/ctl.h"

#include <signal.h>
#include <unistd.h>

static const char gone[] = "what ended it is in the log of rdmad; whether that still runs says: rdmactl status";

static const struct error {
	int error;
	enum ctl_exit status;
	unsigned number; /* of rdmactl explain; 0: none */
	const char *hint;
} errors[] = {
	{ECONNREFUSED, CTL_UNREACHABLE, 6001,
	 "does rdmad run there, and listen on this address? see listen in its rdmad.conf"},
	{EHOSTUNREACH, CTL_UNREACHABLE, 6002, "is the name right and the network up? try: rdmactl ping HOST"},
	{ENETUNREACH, CTL_UNREACHABLE, 6003, "is the network up, with one MTU at both ends? see: ip route, ip link"},
	{ENETDOWN, CTL_UNREACHABLE, 6003, "is the network up? see: ip link"},
	{EHOSTDOWN, CTL_UNREACHABLE, 0, "is the host up?"},
	{EADDRNOTAVAIL, CTL_UNREACHABLE, 6003, "is the address right? see: ip address"},
	{ENOTCONN, CTL_UNREACHABLE, 6004, gone},
	{ECONNRESET, CTL_UNREACHABLE, 6004, gone},
	{ECONNABORTED, CTL_UNREACHABLE, 0, NULL}, /* on purpose, and the words say why */
	{ESHUTDOWN, CTL_UNREACHABLE, 6005,
	 "what it does: rdmactl status; to end it: rdmactl shutdown; to start one: rdmad"},
	{EPIPE, CTL_UNREACHABLE, 6004, gone},
	{ENOENT, CTL_NOT_FOUND, 0, NULL},
	{ETIMEDOUT, CTL_TIMEOUT, 6006,
	 "the limit is --timeout; what the daemon does says, on its machine: rdmactl status"},
	{EPROTONOSUPPORT, CTL_VERSION, 6007, "compare: rdmactl version, and rdmad --version on the server"},
	{ENODEV, CTL_FAILED, 6008, "is there an RDMA device? see: rdma link; without one: tcp://HOST"},
	{EPROTO, CTL_FAILED, 6009,
	 "does an rdmad listen there? its rdmad.conf says: port, 7471 as a rule, and unix_socket, which is not "
	 "control.socket"},
	{ENOSPC, CTL_FAILED, 6010,
	 "how full is it? see: rdmactl kv stat; its memory is kv.memory in rdmad.conf; the disk: rdmactl log status"},
	{EINTR, CTL_INTERRUPTED, 0, NULL},
};

/* Find what is known of a negative errno. NULL: nothing. */
static const struct error *find_error(int error)
{
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
		if (errors[i].error == -error)
			return &errors[i];
	return NULL;
}

static unsigned said_number;

/* The next step, and under which number there is more. */
static void print_next(const char *hint, unsigned number)
{
	fprintf(stderr, "%s\n", hint);
	said_number = number;
	if (number)
		fprintf(stderr, "more: rdmactl explain " CTL_ERROR_ID "\n", number);
}

unsigned ctl_said_number(void)
{
	return said_number;
}

static void print_hint(int error)
{
	const struct error *e = find_error(error);

	if (e && e->hint)
		print_next(e->hint, e->number);
}

static void print_hint_about(int error, const char *server)
{
	const char *host = strstr(server, "://") ? strstr(server, "://") + 3 : server;
	/* Whether the address is one of this machine, as far as its text says. */
	bool local = *host == '/' || strncmp(host, "127.", 4) == 0 || strncmp(host, "localhost", 9) == 0 ||
		     strncmp(host, "[::1]", 5) == 0 || strncmp(host, "::1", 3) == 0;

	if (error == -ECONNREFUSED && local)
		print_next("start the daemon with: rdmad", 6001);
	else
		print_hint(error);
}

enum ctl_exit ctl_exit_of(int error)
{
	const struct error *e = find_error(error);

	if (!error)
		return CTL_OK;
	return e ? e->status : CTL_FAILED;
}

bool ctl_file_ends(const char *path, const char *ending)
{
	size_t len = strlen(path), n = strlen(ending);

	return len >= n && strcasecmp(path + len - n, ending) == 0;
}

static char said[1024];

void ctl_say(const char *format, ...)
{
	char line[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	ctl_flush(); /* so that both streams tell the story in order */
	fprintf(stderr, "rdmactl: %s\n", log_printable(said, line, sizeof(line)));
}

const char *ctl_said(void)
{
	return said;
}

void ctl_say_of(const char *address, const char *why)
{
	const char *scheme = address ? strstr(address, "://") : NULL;

	if (!address || strstr(why, scheme ? scheme + 3 : address))
		ctl_say("%s: %s", ctl_command_name(), why);
	else
		ctl_say("%s %s: %s", ctl_command_name(), address, why);
}

static const char *error_text(int error, const char *why)
{
	if (!why)
		why = rdmad_error();
	return *why ? why : strerror(-error);
}

int ctl_fail(int error, const char *why, const char *format, ...)
{
	char what[512];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	ctl_say("%s: %s", what, error_text(error, why));
	print_hint(error);
	return (int)ctl_exit_of(error);
}

int ctl_fail_channel(int error, const char *why, const char *url)
{
	ctl_say_of(url, error_text(error, why));
	if (error == -EINVAL && !ctl.require_rdma) /* the URL is none; else it may only lack RDMA */
		return ctl_usage_hint();
	if (why || strncmp(url, "meet://", strlen("meet://")) != 0)
		return (int)ctl_exit_of(error);
	if (find_error(error) && find_error(error)->hint == gone)
		fputs("has the program at the other end ended, or the rdmad between? see: rdmactl status\n", stderr);
	else
		print_hint_about(error, url);
	return (int)ctl_exit_of(error);
}

int ctl_fail_open(int error, const char *server)
{
	/* The path of a UNIX socket that is not there. */
	if (error == -ENOENT)
		error = -ECONNREFUSED;
	if (*rdmad_error()) /* it names the server, the transport and the cause */
		ctl_say("%s", rdmad_error());
	else
		ctl_say("cannot connect to %s: %s", server, strerror(-error));
	if (error == -EINVAL && !ctl.require_rdma) /* the address is none; else it may only lack RDMA */
		return ctl_usage_hint();
	print_hint_about(error, server);
	return (int)ctl_exit_of(error);
}

static volatile sig_atomic_t interrupted;
static bool echoed; /* a terminal shows ^C, and what is said next begins a line */

static void on_interrupt(int signal)
{
	int error = errno;

	interrupted = 1;
	if (signal == SIGINT && echoed && write(STDERR_FILENO, "\n", 1) < 0)
		echoed = false;
	errno = error;
}

void ctl_catch_interrupt(void)
{
	/* No SA_RESTART, so that a wait ends; the second signal finds the default action. */
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};

	echoed = isatty(STDERR_FILENO);
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

void ctl_interrupt(void)
{
	interrupted = 1;
}

bool ctl_interrupted(void)
{
	return interrupted;
}

bool ctl_sums_up(void)
{
	return !ctl.quiet && ctl_flush() == 0 && !ferror(stdout);
}

void ctl_say_transport(const char *server, const char *transport)
{
	if (!ctl.json && ctl_sums_up())
		ctl_say("%s: transport %s", server, transport);
}
