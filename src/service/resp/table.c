/* table.c: what carries out each command. */
#include "service/resp/resp.h"

#define ROW(ID, name) [RESP_CMD_##ID] = resp_do_##name,
resp_serve_fn *const resp_serve[RESP_IDS] = {RESP_DO_ALL(ROW)};
