/* far.c: towards a host. */
#include "ctl/doctor/doctor.h"

void far_look(struct doctor *d, const char *host)
{
	(void)d, (void)host;
}

void far_print(const struct doctor *d)
{
	(void)d;
}
