/* internal.h: the rows of the service table, and what services keep in a worker. */
#ifndef RDMAD_SERVICE_INTERNAL_H
#define RDMAD_SERVICE_INTERNAL_H

#include "service/service.h"

extern const struct service service_ping;
extern const struct service service_kv;
extern const struct service service_gpu;

/*
 * rendezvous.c
 */
void kv_worker_free(struct service_worker *worker);

/*
 * gpu_worker.c
 */
int gpu_worker_create(struct service_worker *worker);
void gpu_worker_free(struct service_worker *worker);

#endif
