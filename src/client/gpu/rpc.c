/*
 * rpc.c: jobs as requests. Several go in a message; the server reads the input from the caller's memory, and ends the
 * job by writing the output there. What finds no room in a message waits: nothing is lost.
 */
#include "client/gpu/gpu.h"

static struct wire_remote remote_of(const struct rdmad_gpu *gpu, const void *addr, uint32_t size,
				    const struct reach *reach)
{
	return (struct wire_remote){
		.addr = (uintptr_t)addr,
		.length = size,
		.rkey = fabric_region_rkey(reach_region(reach), conn_endpoint(gpu->conn)),
	};
}

void client_gpu_rpc_pump(struct rdmad_gpu *gpu)
{
	while (gpu->conn && gpu->waits) {
		struct wire_record *record = conn_reserve(gpu->conn, sizeof(struct wire_gpu_job), NULL);
		struct wire_gpu_job *body;
		struct job *job;

		if (!record)
			return; /* writable() comes when there is room */
		job = job_next(gpu);
		record->op = WIRE_OP_GPU_JOB;
		record->id = job->id;
		body = (struct wire_gpu_job *)(record + 1);
		*body = (struct wire_gpu_job){
			.op = job->asked.op,
			.input = remote_of(gpu, job->asked.input, job->input_size, &job->input),
			.output = remote_of(gpu, job->asked.output, job->output_size, &job->output),
		};
		memcpy(body->param, job->asked.param, sizeof(body->param));
		conn_commit(gpu->conn, record, sizeof(struct wire_gpu_job));
	}
}

int client_gpu_rpc_done(struct rdmad_gpu *gpu, uint32_t id, int status)
{
	struct job *job = job_find(&gpu->jobs, id);

	if (!job || job->state != JOB_SENT)
		return -EPROTO;
	job_finish(gpu, job, status);
	return 0;
}
