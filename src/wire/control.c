/* control.c: the place of the control socket unless it is configured. */
#include "wire/wire.h"

char *wire_control_path(const char *given, char *buf, size_t size)
{
	return address_runtime_path("control.sock", "rdmad-control.sock", given, buf, size);
}
