/*
 * places.c: places for sessions. There are so many, and one source (an address, or a user of this machine) has only a
 * part of them. A client that finds none asks the session that has been idle for longest to leave. Taken and given back
 * once in a session, so a lock and a walk over all of them do.
 */
#include "service/gpu/gpu.h"

struct count {
	uint32_t all, same, client;
	struct gpu_service_place *free;
};

static struct count count_places(const struct gpu_service *gpu, const struct fabric_source *source, const char *client)
{
	struct count count = {0};

	for (uint32_t i = 0; i < gpu->sessions_max; i++) {
		struct gpu_service_place *place = &gpu->place[i];

		if (!place->thread) {
			count.free = place;
			continue;
		}
		count.all++;
		count.same += fabric_source_same(&place->source, source);
		count.client += strcmp(place->client, client) == 0;
	}
	return count;
}

/* Of `source` alone unless that is NULL. */
static struct gpu_service_place *longest_idle(const struct gpu_service *gpu, const struct fabric_source *source,
					      uint64_t now)
{
	struct gpu_service_place *found = NULL;

	for (uint32_t i = 0; i < gpu->sessions_max; i++) {
		struct gpu_service_place *place = &gpu->place[i];

		if (place->thread && !place->leave && place->used < now && now - place->used >= gpu->idle_timeout &&
		    (!source || fabric_source_same(&place->source, source)) && (!found || place->used < found->used))
			found = place;
	}
	return found;
}

static bool evict(const struct gpu_service *gpu, const struct fabric_source *source, uint64_t now)
{
	struct gpu_service_place *place = gpu->idle_timeout ? longest_idle(gpu, source, now) : NULL;

	if (!place)
		return false;
	place->leave = true;
	gpu_service_thread_wake(place->thread); /* which does not end while it has the place */
	return true;
}

enum gpu_place_answer gpu_agent_take_place(struct gpu_agent *a)
{
	enum gpu_place_answer answer = GPU_PLACE_TAKEN;
	const struct auth_client *client = conn_client(a->conn);
	struct gpu_service *gpu = gpu_agent_service(a);
	struct fabric_source source;
	struct count count;

	must(!a->place);
	fabric_endpoint_source(conn_endpoint(a->conn), &source);
	pthread_mutex_lock(&gpu->lock);
	count = count_places(gpu, &source, client->name);
	if (count.client >= client->gpu_sessions)
		answer = GPU_PLACE_CLIENT;
	else if (gpu->per_source && gpu->per_source < gpu->sessions_max && count.same >= gpu->per_source)
		answer = GPU_PLACE_SOURCE;
	else if (!count.free)
		answer = GPU_PLACE_FULL;
	else
		a->place = count.free;
	if (a->place) {
		*a->place = (struct gpu_service_place){.thread = a->thread, .source = source, .used = TIME_NEVER};
		snprintf(a->place->client, sizeof(a->place->client), "%s", client->name);
	} else if (!a->evicts && answer != GPU_PLACE_CLIENT)
		a->evicts = evict(gpu, answer == GPU_PLACE_SOURCE ? &source : NULL, gpu_agent_now(a));
	atomic_store_explicit(&gpu->sessions, count.all + (a->place ? 1 : 0), memory_order_relaxed);
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
	atomic_fetch_sub_explicit(&gpu->sessions, 1, memory_order_relaxed);
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
