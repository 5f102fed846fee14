/* agent.c: rdmarun at another host, for one rank. The frames of wire/run.h that come say what to start, and then they
 * are its input and its signals. */
#include "run/run.h"

#include <stdlib.h>

static struct buffer arguments; /* each ended by a zero */

typedef int frame_fn(struct run *run, const char *data, size_t length);

static int take_argument(struct run *run, const char *data, size_t length)
{
	buffer_add(&arguments, data, length);
	buffer_add(&arguments, "", 1);
	return 0;
}

static int take_environment(struct run *run, const char *data, size_t length)
{
	buffer_add(&run_options.env, data, length);
	buffer_add(&run_options.env, "", 1);
	return 0;
}

static int take_directory(struct run *run, const char *data, size_t length)
{
	run_options.directory = strndup(data, length);
	return run_options.directory ? 0 : -ENOMEM;
}

static int take_number(const char *data, size_t length, uint64_t least, uint64_t most, uint64_t *out)
{
	char text[24]; /* with more digits it is too large anyway */

	snprintf(text, sizeof(text), "%.*s", (int)length, data);
	return units_parse_number(text, least, most, out);
}

static int take_grace(struct run *run, const char *data, size_t length)
{
	return take_number(data, length, 0, UINT64_MAX, &run_options.grace);
}

static int take_start(struct run *run, const char *data, size_t length)
{
	size_t count = 0;
	char **argv;

	if (run->started || run->ending || !arguments.used)
		return -EPROTO;
	argv = calloc(arguments.used + 1, sizeof(*argv));
	if (!argv)
		return -ENOMEM;
	for (char *at = arguments.data; at < arguments.data + arguments.used; at += strlen(at) + 1)
		argv[count++] = at;
	run_options.argv = argv;
	run_start(run);
	free(argv);
	buffer_free(&arguments);
	return 0;
}

static int take_input(struct run *run, const char *data, size_t length)
{
	feed_add(&run->rank->in, data, length);
	return 0;
}

static int take_input_over(struct run *run, const char *data, size_t length)
{
	feed_end(&run->rank->in);
	return 0;
}

static int take_signal(struct run *run, const char *data, size_t length)
{
	uint64_t number;
	int rc = take_number(data, length, 1, NSIG - 1, &number);

	if (rc == 0)
		run_signal(run, (int)number);
	return rc;
}

static const struct {
	enum wire_run_kind kind;
	frame_fn *fn;
} frames[] = {
	{WIRE_RUN_ARGUMENT, take_argument},     {WIRE_RUN_ENVIRONMENT, take_environment},
	{WIRE_RUN_DIRECTORY, take_directory},   {WIRE_RUN_GRACE, take_grace},
	{WIRE_RUN_START, take_start},           {WIRE_RUN_INPUT, take_input},
	{WIRE_RUN_INPUT_OVER, take_input_over}, {WIRE_RUN_SIGNAL, take_signal},
};

static int take_frame(struct run *run, const struct wire_run_head *head, size_t length)
{
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++)
		if (frames[i].kind == (enum wire_run_kind)head->kind)
			return frames[i].fn(run, (const char *)(head + 1), length);
	return -EPROTO;
}

int agent_take(struct run *run, struct buffer *come)
{
	size_t at = 0;
	int rc = 0;

	while (rc == 0 && come->used - at >= sizeof(struct wire_run_head)) {
		const struct wire_run_head *head = (const struct wire_run_head *)(come->data + at);
		size_t length;

		rc = wire_run_decode(head, &length);
		if (rc != 0 || come->used - at - sizeof(*head) < length)
			break;
		rc = take_frame(run, head, length);
		at += sizeof(*head) + length;
	}
	buffer_drop(come, at);
	if (rc != 0)
		run_say("what came is of no rdmarun of this version: %s", strerror(-rc));
	return rc;
}
