/*
 * watch.c: changed keys, as a thread hears of them for one service. The thread watches the store while one of its
 * clients may hear of anything; the events go through it once, whatever number of clients they are for.
 */
#include "service/internal.h"

#define TURN_TIME (4 * TIME_MS)
#define TURN_LOOK 64 /* events between two looks at the clock */

int service_watch_set(struct service_watch *watch, struct service_part *part, struct store *store, int fd, bool wanted)
{
	int rc = 0;

	must(service_part_is_mine(part));
	if (wanted == watch->on)
		return 0;
	if (wanted) {
		rc = store_watch_begin(store, &watch->watcher, fd);
		if (rc != 0)
			return rc;
		watch->store = store;
		service_part_join(part);
	} else {
		store_watch_end(store, &watch->watcher);
		service_part_leave(part);
	}
	watch->on = wanted;
	return 0;
}

/* The commands of one turn may cause thousands of events, and each is looked at for many clients: time bounds both. */
static bool turn_is_over(struct service_watch *watch)
{
	uint64_t now;

	if (!watch->count || watch->count % TURN_LOOK)
		return false;
	now = time_now();
	if (watch->count == TURN_LOOK)
		watch->end = now + TURN_TIME;
	return now >= watch->end;
}

bool service_watch_next(struct service_watch *watch, struct store_event *out)
{
	if (watch->on && !turn_is_over(watch) && store_watch_next(watch->store, &watch->watcher, out)) {
		watch->count++;
		return true;
	}
	watch->count = 0;
	return false;
}

bool service_watch_arm(struct service_watch *watch)
{
	return !watch->on || store_watch_sleep(watch->store, &watch->watcher);
}

void service_watch_disarm(struct service_watch *watch)
{
	if (watch->on)
		store_watch_rise(watch->store, &watch->watcher);
}
