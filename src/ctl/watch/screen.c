/* screen.c: the screen of a terminal. What handlers of signals call is safe there: write(), tcsetattr(), kill(). */
#include "ctl/watch/watch.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios usual;
static volatile sig_atomic_t opened, resized;

bool screen_is_there(void)
{
	const char *kind = getenv("TERM");

	return ctl_at_terminal() && isatty(STDIN_FILENO) && kind && *kind && strcmp(kind, "dumb") != 0;
}

static void screen_put(const char *text, size_t len)
{
	while (len) {
		ssize_t n = write(STDOUT_FILENO, text, len);

		if (n < 0 && errno != EINTR)
			return;
		text += MAX(n, 0);
		len -= (size_t)MAX(n, 0);
	}
}

/* The other screen, without a cursor, and keys one by one. */
static void screen_enter(void)
{
	static const char text[] = "\033[?1049h\033[?25l\033[H\033[J";
	struct termios keys = usual;

	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	tcsetattr(STDIN_FILENO, TCSANOW, &keys);
	screen_put(text, sizeof(text) - 1);
}

static void screen_leave(void)
{
	static const char text[] = "\033[?25h\033[?1049l";

	screen_put(text, sizeof(text) - 1);
	tcsetattr(STDIN_FILENO, TCSANOW, &usual);
}

static void on_end(int signal)
{
	int error = errno;

	if (ctl_interrupted()) {
		screen_close();
		(void)!raise(signal);
	}
	ctl_interrupt();
	errno = error;
}

static void on_fault(int signal)
{
	screen_close();
	(void)!raise(signal);
}

static void on_stop(int signal)
{
	int error = errno;

	(void)signal;
	screen_leave();
	kill(getpid(), SIGSTOP);
	screen_enter();
	resized = 1;
	errno = error;
}

static void on_resize(int signal)
{
	(void)signal;
	resized = 1;
}

static const struct {
	int signal;
	void (*handler)(int signal);
	int flags;
} signals[] = {
	{SIGINT, on_end, 0},
	{SIGTERM, on_end, 0},
	{SIGHUP, on_end, 0},
	{SIGQUIT, on_end, 0},
	{SIGTSTP, on_stop, SA_RESTART},
	{SIGWINCH, on_resize, SA_RESTART},
	{SIGABRT, on_fault, SA_RESETHAND},
	{SIGSEGV, on_fault, SA_RESETHAND},
	{SIGBUS, on_fault, SA_RESETHAND},
};

/* A sanitizer's handlers stay. */
static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL}, old;

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		action.sa_handler = signals[i].handler;
		action.sa_flags = signals[i].flags;
		if (signals[i].handler != on_fault ||
		    (sigaction(signals[i].signal, NULL, &old) == 0 && old.sa_handler == SIG_DFL))
			sigaction(signals[i].signal, &action, NULL);
	}
}

void screen_open(void)
{
	static bool once;

	if (!once && tcgetattr(STDIN_FILENO, &usual) == 0) {
		once = true;
		atexit(screen_close);
	}
	if (opened || !once)
		return;
	opened = 1;
	catch_signals();
	screen_enter();
}

/* From a handler, too: a second signal of an end finds the default action. */
void screen_close(void)
{
	if (!opened)
		return;
	opened = 0;
	screen_leave();
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (signals[i].handler != on_fault)
			signal(signals[i].signal, SIG_DFL);
}

void screen_size(unsigned *rows, unsigned *columns)
{
	struct winsize size = {0};

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	*rows = size.ws_row ? size.ws_row : 24;
	*columns = size.ws_col ? size.ws_col : 80;
}

/* How many bytes of a line have so many columns. Bytes that go on a character of UTF-8 have none. */
static size_t line_cut(const char *line, size_t len, unsigned columns)
{
	size_t n = 0;

	for (; n < len && (columns || ((unsigned char)line[n] & 0xc0) == 0x80); n++)
		columns -= ((unsigned char)line[n] & 0xc0) != 0x80;
	return n;
}

void screen_show(const char *text)
{
	unsigned rows, columns;
	char *frame = NULL;
	size_t size = 0;
	FILE *out;

	screen_size(&rows, &columns);
	out = open_memstream(&frame, &size);
	if (!out)
		return;
	fputs("\033[H", out);
	for (unsigned row = 0; row < rows && *text; row++) {
		size_t len = strcspn(text, "\n");

		fprintf(out, "%s%.*s\033[K", row ? "\n" : "", (int)line_cut(text, len, columns), text);
		text += len + (text[len] == '\n');
	}
	fputs("\033[J", out);
	if (fclose(out) == 0)
		screen_put(frame, size);
	free(frame);
}

static struct {
	unsigned char at[32];
	size_t next, end;
} typed;

/* The next one that was typed; SCREEN_TIME: there is none. Of an arrow, and the like, comes ESC, "[" and what ends by a
 * letter or "~". */
static int next_key(void)
{
	while (typed.next < typed.end) {
		unsigned char key = typed.at[typed.next++];

		if (key >= ' ' && key < 0x7f)
			return key;
		if (key != 033 || typed.next == typed.end || !strchr("[O", typed.at[typed.next]))
			continue;
		typed.next++;
		while (typed.next < typed.end && typed.at[typed.next++] < '@')
			;
	}
	return SCREEN_TIME;
}

static int read_key(void)
{
	ssize_t n = read(STDIN_FILENO, typed.at, sizeof(typed.at));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return SCREEN_TIME;
	if (n <= 0)
		return SCREEN_END;
	typed.next = 0;
	typed.end = (size_t)n;
	return next_key();
}

int screen_wait(uint64_t until)
{
	for (;;) {
		struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
		uint64_t now = time_now();
		int n, key;

		if (ctl_interrupted())
			return SCREEN_END;
		if (resized) {
			resized = 0;
			return SCREEN_RESIZED;
		}
		key = next_key();
		if (key != SCREEN_TIME)
			return key;
		if (now >= until)
			return SCREEN_TIME;
		/* A signal in front of poll() waits for a slice at most. */
		n = poll(&in, 1, (int)(MIN(until - now, (uint64_t)CTL_SLICE) / TIME_MS + 1));
		if (n <= 0)
			continue;
		key = read_key();
		if (key != SCREEN_TIME)
			return key;
	}
}
