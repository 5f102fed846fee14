/*
 * watch.c: changed keys, as a thread hears of them for one service. The thread watches the store while one of its
 * clients may hear of anything; the events go through it once, whatever number of clients they are for.
 */
#include "service/internal.h"

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

bool service_watch_next(struct service_watch *watch, struct store_event *out)
{
	return watch->on && store_watch_next(watch->store, &watch->watcher, out);
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
