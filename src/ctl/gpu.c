/* gpu.c: facts about the gpu service, and one image through it. */
#include "ctl/ctl.h"
#include "rdmad/gpu.h"

#include <stdlib.h>

#define LEVELS_DEFAULT 4

static uint64_t levels = LEVELS_DEFAULT;
static const char *mode_text = "rpc";

static const struct ctl_option quantize_options[] = {
	{"levels", 'l', CTL_NUMBER, &levels, "N", "levels of grey, 1 to 256; default 4", .min = 1, .max = 256},
	{"mode", 'm', CTL_CHECKED, &mode_text, "MODE",
	 "rpc, or queue: drive the server's queues from here; default rpc", .check = ctl_gpu_check_mode,
	 .choices = "rpc queue"},
	{NULL},
};

static const char *const modes[] = {[RDMAD_GPU_RPC] = "rpc", [RDMAD_GPU_QUEUE] = "queue"};

static int mode_of(const char *text, enum rdmad_gpu_mode *mode)
{
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strcmp(text, modes[i]) == 0) {
			*mode = (enum rdmad_gpu_mode)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *ctl_gpu_mode_name(enum rdmad_gpu_mode mode)
{
	return modes[mode];
}

int ctl_gpu_check_mode(const char *text)
{
	enum rdmad_gpu_mode mode;
	int rc = mode_of(text, &mode);

	if (rc != 0)
		ctl_say("--mode %s: it is rpc or queue", text);
	return rc;
}

void ctl_gpu_options(struct rdmad_gpu_options *options, const char *mode)
{
	*options = (struct rdmad_gpu_options){0};
	ctl_library_options(&options->common);
	mode_of(mode, &options->mode);
}

static void print_quantized(const struct rdmad_gpu_session *session, const char *in, const struct image *image)
{
	json_t *o;

	if (!ctl.json) {
		if (!ctl.quiet)
			ctl_say("%s: %u x %u pixels to %llu levels, transport %s, backend %s on %s", ctl.host,
				image->width, image->height, (unsigned long long)levels, session->transport,
				session->backend, session->device);
		return;
	}
	o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "command", "gpu quantize", "server",
		      ctl.host, "transport", session->transport, "mode", ctl_gpu_mode_name(session->mode), "backend",
		      session->backend, "device", session->device, "input", in, "width", (json_int_t)image->width,
		      "height", (json_int_t)image->height, "levels", (json_int_t)levels);
	ctl_json_print(o);
}

static int command_quantize(const struct ctl_arguments *arguments)
{
	const char *in = arguments->text[0], *out = arguments->text[1];
	struct rdmad_gpu_options options;
	struct rdmad_gpu *gpu;
	struct image image;
	int rc;

	if (ctl.json && strcmp(out, "-") == 0)
		return ctl_usage_error("gpu quantize: standard output cannot take both the image and --json");
	if (!image_format_known(out))
		return ctl_usage_error("gpu quantize: %s: an image is written as .png or .pgm", out);
	rc = image_read(in, &image);
	if (rc != CTL_OK)
		return rc;
	ctl_gpu_options(&options, mode_text);
	options.size_max = image.width * image.height;
	rc = rdmad_gpu_open(ctl.host, &options, &gpu);
	if (rc != 0) {
		rc = ctl_fail_open(rc, ctl.host);
	} else {
		rc = rdmad_gpu_quantize(gpu, image.width, image.height, (uint32_t)levels, image.pixels, image.pixels);
		rc = rc ? ctl_fail(rc, NULL, "gpu quantize %s", in) : image_write(out, &image);
		if (rc == CTL_OK)
			print_quantized(rdmad_gpu_session(gpu), in, &image);
		rdmad_gpu_close(gpu);
	}
	image_release(&image);
	return rc;
}

static json_t *operation_names(uint64_t bits)
{
	json_t *list = json_array();

	for (unsigned op = 0; op < 64; op++) {
		const char *name = rdmad_gpu_operation_name(op);

		if (bits >> op & 1)
			json_array_append_new(list, name ? json_string(name) : json_integer(op));
	}
	return list;
}

static void print_info(const struct rdmad_gpu_info *info)
{
	char size[32], memory[32], in[32], out[32];
	json_t *operations = operation_names(info->operations), *name;
	size_t i;

	printf("backend      ");
	ctl_put_key(info->backend, strlen(info->backend));
	printf("\ndevice       ");
	ctl_put_key(info->device, strlen(info->device));
	printf("\nsessions     %u of %u\n", info->sessions, info->sessions_max);
	printf("of each      up to %u queues of %u slots, %s a job, %s in all\n", info->queues_max, info->slots_max,
	       units_format_size(info->size_max, size), units_format_size(info->memory_max, memory));
	printf("operations  ");
	json_array_foreach(operations, i, name)
		printf("%s %s", i ? "," : "", json_string_value(name) ? json_string_value(name) : "unknown");
	printf("\nrpc          %llu jobs, %s in, %s out\n", (unsigned long long)info->jobs,
	       units_human_size((double)info->bytes_in, in), units_human_size((double)info->bytes_out, out));
	json_decref(operations);
}

static int command_info(const struct ctl_arguments *arguments)
{
	struct rdmad_options options;
	struct rdmad_gpu_info info;
	int rc;

	(void)arguments;
	memset(&options, 0, sizeof(options));
	ctl_library_options(&options);
	rc = rdmad_gpu_server_info(ctl.host, &options, &info);
	if (rc != 0)
		return ctl_fail_open(rc, ctl.host);
	if (ctl.json)
		return ctl_json_print(
			json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I}",
				  "command", "gpu info", "server", ctl.host, "transport", info.transport, "backend",
				  info.backend, "device", info.device, "sessions", (json_int_t)info.sessions,
				  "sessions_max", (json_int_t)info.sessions_max, "queues_max",
				  (json_int_t)info.queues_max, "slots_max", (json_int_t)info.slots_max, "job_max_bytes",
				  (json_int_t)info.size_max, "session_max_bytes", (json_int_t)info.memory_max,
				  "operations", operation_names(info.operations), "jobs", (json_int_t)info.jobs,
				  "in_bytes", (json_int_t)info.bytes_in, "out_bytes", (json_int_t)info.bytes_out));
	print_info(&info);
	ctl_say_transport(ctl.host, info.transport);
	return CTL_OK;
}

const struct ctl_command ctl_gpu_commands[] = {
	{"gpu quantize", command_quantize, "IN|- OUT|-", "reduce the levels of grey of an image", quantize_options, 2,
	 2},
	{"gpu info", command_info, "", "facts about the server's gpu service", NULL, 0, 0},
	{NULL},
};
