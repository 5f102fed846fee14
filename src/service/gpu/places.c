/*
 * places.c: places for sessions. There are so many, and one source (an address, or a user of this machine) has only a
 * part of them, as a client by its line has. A client that finds none asks the session that has been idle for longest
 * to leave. Taken and given back once in a session, so a lock and a walk over all of them do.
 */
#include "service/gpu/gpu.h"

/* Counts one more. A limit of a source that is as high as that of all is none. */
static enum gpu_place_answer places_count(struct gpu_service *gpu, const struct fabric_source *of,
					  const struct auth_client *client, struct quota_share **source,
					  struct quota_share **name)
{
	uint64_t most = gpu->per_source && gpu->per_source < gpu->sessions_max ? gpu->per_source : UINT64_MAX;
	char key[AUTH_NAME_MAX + 1] = "";
	unsigned met;

	snprintf(key, sizeof(key), "%s", client->name);
	if (quota_take(gpu->clients, key, client->gpu_sessions, name) & QUOTA_SOURCE)
		return GPU_PLACE_CLIENT;
	met = quota_take(gpu->sources, fabric_source_key(of), most, source);
	if (!met)
		return GPU_PLACE_TAKEN;
	quota_give(*name);
	return met & QUOTA_SOURCE ? GPU_PLACE_SOURCE : GPU_PLACE_FULL;
}

/* Asks the session that is idle for longest to leave, if there is one; of `source` alone unless that is NULL. */
static bool places_evict(const struct gpu_service *gpu, const struct fabric_source *source, uint64_t now)
{
	struct gpu_service_place *found = NULL;

	for (uint32_t i = 0; i < gpu->sessions_max && gpu->idle_timeout; i++) {
		struct gpu_service_place *place = &gpu->place[i];

		if (place->thread && !place->leave && place->used < now && now - place->used >= gpu->idle_timeout &&
		    (!source || fabric_source_same(&place->source, source)) && (!found || place->used < found->used))
			found = place;
	}
	if (!found)
		return false;
	found->leave = true;
	gpu_service_thread_wake(found->thread); /* which does not end while it has the place */
	return true;
}

enum gpu_place_answer gpu_agent_take_place(struct gpu_agent *a)
{
	struct gpu_service_place place = {.thread = a->thread, .used = TIME_NEVER};
	struct gpu_service *gpu = gpu_agent_service(a);
	enum gpu_place_answer answer;

	must(!a->place);
	fabric_endpoint_source(conn_endpoint(a->conn), &place.source);
	pthread_mutex_lock(&gpu->lock);
	answer = places_count(gpu, &place.source, conn_client(a->conn), &place.of_source, &place.of_client);
	if (answer == GPU_PLACE_TAKEN) {
		for (a->place = gpu->place; a->place->thread; a->place++)
			must(a->place + 1 < gpu->place + gpu->sessions_max); /* there is one for each that is counted */
		*a->place = place;
	} else if (!a->evicts && answer != GPU_PLACE_CLIENT) {
		a->evicts = places_evict(gpu, answer == GPU_PLACE_SOURCE ? &place.source : NULL, gpu_agent_now(a));
	}
	pthread_mutex_unlock(&gpu->lock);
	return answer;
}

void gpu_agent_give_place(struct gpu_agent *a)
{
	struct gpu_service *gpu = gpu_agent_service(a);

	if (!a->place)
		return;
	pthread_mutex_lock(&gpu->lock);
	a->place->thread = NULL;
	quota_give(a->place->of_source);
	quota_give(a->place->of_client);
	pthread_mutex_unlock(&gpu->lock);
	a->place = NULL;
}

void gpu_agent_used_place(struct gpu_agent *a, uint64_t when)
{
	struct gpu_service *gpu = gpu_agent_service(a);

	if (!a->place)
		return;
	pthread_mutex_lock(&gpu->lock);
	a->place->used = when;
	a->place->leave = false;
	pthread_mutex_unlock(&gpu->lock);
}

bool gpu_agent_is_to_leave(struct gpu_agent *a)
{
	struct gpu_service *gpu = gpu_agent_service(a);
	bool leave;

	if (!a->place)
		return false;
	pthread_mutex_lock(&gpu->lock);
	leave = a->place->leave;
	pthread_mutex_unlock(&gpu->lock);
	return leave;
}
