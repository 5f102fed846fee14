/* arguments.c: the command line of rdmad-gpu, from one table. */
#include "gpu/program/program.h"
#include "gpu/spawn.h"

#include <getopt.h>
#include <sysexits.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#define AT(member) offsetof(struct gpu_arguments, member)

static int set_text(struct gpu_arguments *out, size_t at, const char *text)
{
	*(const char **)((char *)out + at) = text;
	return 0;
}

static int set_flag(struct gpu_arguments *out, size_t at, const char *text)
{
	(void)text;
	*(bool *)((char *)out + at) = true;
	return 0;
}

static int set_time(struct gpu_arguments *out, size_t at, const char *text)
{
	uint64_t *to = (uint64_t *)((char *)out + at);

	if (strcmp(text, "never") != 0)
		return units_parse_time(text, to);
	*to = TIME_NEVER;
	return 0;
}

static int set_number(struct gpu_arguments *out, size_t at, const char *text)
{
	return units_parse_number(text, 0, INT32_MAX, (uint64_t *)((char *)out + at));
}

static int set_threads(struct gpu_arguments *out, size_t at, const char *text)
{
	uint64_t threads;
	int rc = units_parse_number(text, 0, GPU_THREADS_MAX, &threads);

	(void)at;
	if (rc == 0)
		out->attr.threads = (unsigned)threads;
	return rc;
}

static int set_size(struct gpu_arguments *out, size_t at, const char *text)
{
	char width[16];
	size_t n = strcspn(text, "x");

	(void)at;
	if (text[n] != 'x' || n >= sizeof(width))
		return -EINVAL;
	memcpy(width, text, n);
	width[n] = '\0';
	if (units_parse_number(width, 1, WIRE_RING_PAYLOAD_MAX, &out->width) != 0 ||
	    units_parse_number(text + n + 1, 1, WIRE_RING_PAYLOAD_MAX, &out->height) != 0)
		return -EINVAL;
	return out->width * out->height <= WIRE_RING_PAYLOAD_MAX ? 0 : -ERANGE;
}

static int set_mode(struct gpu_arguments *out, size_t mode, const char *text)
{
	(void)text;
	out->mode = (enum gpu_mode)mode;
	return 0;
}

static const struct {
	const char *name, *argument;
	int (*set)(struct gpu_arguments *out, size_t at, const char *text);
	size_t at; /* or the mode */
	const char *help;
} table[] = {
	{"probe", NULL, set_mode, GPU_PROBE, "print the backend and the device that would be used"},
	{"measure", NULL, set_mode, GPU_MEASURE, "print what this machine does without a network"},
	{"backend", "NAME", set_text, AT(attr.backend), "auto (default), cpu or cuda"},
	{"device", "DEVICE", set_text, AT(attr.device), "of cuda: number or UUID"},
	{"kernels", "FILE", set_text, AT(attr.kernels), "of cuda: in place of those built in"},
	{"threads", "N", set_threads, 0, "of cpu; 0 (default): half of the processors"},
	{"nap-after", "TIME", set_time, AT(attr.poll), "poll at most so long before napping (200us), or never"},
	{"park", "TIME", set_time, AT(attr.park),
	 "of cuda: leave the device after such a time without jobs (1s), or never"},
	{"images", "N", set_number, AT(images), "measure: how many (50000)"},
	{"size", "WxH", set_size, 0, "measure: pixels of an image (64x64)"},
	{"levels", "L", set_number, AT(levels), "measure: levels (4)"},
	{"json", NULL, set_flag, AT(json), "measure: one line of JSON"},
	{"timeout", "TIME", set_time, AT(attr.job_timeout), "longest time of a job (10s), or never"},
	{"share", "N", set_number, AT(share), "run on --threads processors from the Nth on"},
	{"queue-mode", NULL, set_flag, AT(queue_mode), "nobody tells when there are jobs"},
	{"ring", "FD", set_number, AT(ring), "of a session: the ring's memory"},
	{"control", "FD", set_number, AT(control), "of a session: the daemon's socket"},
	{"event", "FD", set_number, AT(event), "of a session: what tells of results"},
};

enum { OPTION_HELP = 'h', OPTION_VERSION = 'V', OPTION_IMAGES = 'n', OPTION_FIRST = 256 };

static int print_help(void)
{
	puts("usage: rdmad-gpu --probe [OPTION...]\n"
	     "       rdmad-gpu --measure [OPTION...]\n\n"
	     "The worker process of a session of rdmad's gpu service, which starts it: "
	     "rdmad(8).\n");
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char left[32];

		snprintf(left, sizeof(left), "--%s%s%s", table[i].name, table[i].argument ? " " : "",
			 table[i].argument ? table[i].argument : "");
		printf("  %-20s%s\n", left, table[i].help);
	}
	puts("  -n N                the same as --images\n"
	     "  -V, --version       print the version\n"
	     "  -h, --help          print this help\n\n"
	     "backends in this build:");
	for (const struct gpu_backend *const *backend = gpu_backends; *backend; backend++)
		printf("  %-20s%s\n", (*backend)->name, (*backend)->help);
	return fflush(stdout) == 0 ? EX_OK : EX_IOERR;
}

static int arguments_usage(void)
{
	fputs("Try 'rdmad-gpu --help'.\n", stderr);
	return EX_USAGE;
}

static void make_getopt(struct option *names)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		names[i] = (struct option){
			.name = table[i].name,
			.has_arg = table[i].argument ? required_argument : no_argument,
			.val = OPTION_FIRST + (int)i,
		};
	names[ARRAY_SIZE(table)] = (struct option){"help", no_argument, NULL, OPTION_HELP};
	names[ARRAY_SIZE(table) + 1] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
	names[ARRAY_SIZE(table) + 2] = (struct option){0};
}

static int argument_set(struct gpu_arguments *out, size_t i, const char *text)
{
	if (table[i].set(out, table[i].at, text) == 0)
		return -1;
	log_error("gpu", "--%s %s: this is no %s that it takes (%s)", table[i].name, text, table[i].argument,
		  table[i].help);
	return arguments_usage();
}

static int argument_take(struct gpu_arguments *out, int letter)
{
	size_t images = 0;

	switch (letter) {
	case OPTION_HELP:
		return print_help();
	case OPTION_VERSION:
		puts("rdmad-gpu " PACKAGE_VERSION);
		return fflush(stdout) == 0 ? EX_OK : EX_IOERR;
	case OPTION_IMAGES:
		while (strcmp(table[images].name, "images") != 0)
			images++;
		return argument_set(out, images, optarg);
	case '?':
		return arguments_usage(); /* getopt has said what is wrong */
	default:
		return argument_set(out, (size_t)(letter - OPTION_FIRST), optarg);
	}
}

/* Check what one option alone does not show. */
static int arguments_check(struct gpu_arguments *out)
{
	if (out->mode == GPU_SERVE && (!out->ring || !out->control || !out->event)) {
		log_error("gpu", "rdmad starts this program with --ring, --control and --event; by "
				 "hand, use --probe or --measure");
		return arguments_usage();
	}
	if (out->images < 1 || out->levels < 1 || out->levels > 256) {
		log_error("gpu", "levels are between 1 and 256, and images at least 1");
		return arguments_usage();
	}
	if (out->attr.job_timeout == 0) {
		log_error("gpu", "a job takes longer than no time: --timeout");
		return arguments_usage();
	}
	out->attr.threads = gpu_threads(out->attr.threads);
	return -1;
}

int gpu_arguments_parse(int argc, char **argv, struct gpu_arguments *out)
{
	struct option names[ARRAY_SIZE(table) + 3];
	int letter, rc;

	*out = (struct gpu_arguments){
		.attr = {.program = argv[0],
			 .backend = "auto",
			 .poll = 200 * TIME_US,
			 .park = TIME_S,
			 .job_timeout = 10 * TIME_S},
		.share = UINT64_MAX,
		.images = 50000,
		.width = 64,
		.height = 64,
		.levels = 4,
	};
	make_getopt(names);
	while ((letter = getopt_long(argc, argv, "hVn:", names, NULL)) != -1) {
		rc = argument_take(out, letter);
		if (rc >= 0)
			return rc;
	}
	if (optind < argc) {
		log_error("gpu", "unexpected argument %s", argv[optind]);
		return arguments_usage();
	}
	return arguments_check(out);
}
