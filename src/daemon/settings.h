/* settings.h: the tables of settings, the daemon's and the services'; between settings.c, which has them, and
 * config.c. */
#ifndef RDMAD_DAEMON_SETTINGS_H
#define RDMAD_DAEMON_SETTINGS_H

#include "daemon/daemon.h"

/* A walk over every setting, in the order of the sample: those of the daemon without a group, the services' groups, the
 * daemon's groups.
 *
 *     for (struct settings_walk at = settings_walk(config); at.setting; settings_next(&at))
 */
struct settings_walk {
	const struct setting *setting; /* NULL: there are no more */
	void *values;                  /* that its offset is in; of no meaning where config is NULL */
	const struct config *config;
	unsigned table, row;
};

struct settings_walk settings_walk(const struct config *config); /* NULL: the rows alone */
void settings_next(struct settings_walk *at);

/* Make room for the values of the services' settings: unset. 0 or -ENOMEM. */
int settings_make_room(struct config *config);
void settings_free_room(struct config *config); /* cleared before */

#endif
