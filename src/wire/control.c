/* control.c: the place of the control socket unless it is configured. */
#include "wire/wire.h"

#include <stdlib.h>
#include <unistd.h>

char *wire_control_path(char *buf, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned long user = (unsigned long)geteuid();

	if (user == 0)
		snprintf(buf, size, "/run/rdmad/control.sock");
	else if (runtime && *runtime == '/')
		snprintf(buf, size, "%s/rdmad-control.sock", runtime);
	else
		snprintf(buf, size, "/tmp/rdmad-%lu/control.sock", user);
	return buf;
}
