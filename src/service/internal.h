/* internal.h: the rows of the service table. */
#ifndef RDMAD_SERVICE_INTERNAL_H
#define RDMAD_SERVICE_INTERNAL_H

#include "service/service.h"

extern const struct service service_ping;
extern const struct service service_kv;

#endif
