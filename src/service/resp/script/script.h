/*
 * script.h: scripts of Redis's clients. A script is one step of a view, as any command: it runs on no lock, what it
 * reads and writes is checked and published together, and it runs again where others disturbed it.
 *
 *   commands.c  EVAL, EVALSHA, SCRIPT
 *   known.c     the scripts that are known, of all workers
 *   sha1.c      their names
 *   run.c       a script's life: one Lua of a worker, with bounds of time and memory
 *   library.c   what scripts may call: redis, and what of Lua's own is left
 *   json.c      cjson, if it is installed
 *   match.c     string.find and its relatives, in bounded time
 *   convert.c   replies to Lua's values, and back
 */
#ifndef RDMAD_SERVICE_RESP_SCRIPT_H
#define RDMAD_SERVICE_RESP_SCRIPT_H

#include "service/resp/resp.h"

/*
 * sha1.c
 */
#define RESP_SHA1 40
void resp_sha1(const void *bytes, size_t len, char hex[static RESP_SHA1 + 1]);

/*
 * known.c: by SHA1. When there are too many, those go first that EVAL brought, the oldest first.
 */
#define RESP_SCRIPTS_MAX 10000
#define RESP_SCRIPTS_BYTES (64 * MIB)

/* False: there is no room for it. `loaded`: by SCRIPT LOAD. */
bool resp_known_add(struct resp_scripts *scripts, const char *sha, const char *text, size_t len, bool loaded);
bool resp_known_has(struct resp_scripts *scripts, const char *sha);
/* A copy of its text, for free(); NULL: it is not known, or there is no memory. */
char *resp_known_text(struct resp_scripts *scripts, const char *sha, size_t *len);
void resp_known_flush(struct resp_scripts *scripts);
/* Another number when one was forgotten. */
uint64_t resp_known_age(const struct resp_scripts *scripts);
/* The next of one sequence of numbers for all scripts, 31 bits, which goes on from script to script. */
uint32_t resp_known_random(struct resp_scripts *scripts);
void resp_known_seed(struct resp_scripts *scripts, uint32_t seed);

/*
 * run.c
 */
struct resp_call {
	const char *sha;
	const char *text; /* NULL: not at hand, taken from what is known where the worker has not compiled it */
	size_t len;
	const struct resp_arg *keys, *args;
	unsigned key_count, arg_count;
	bool reads; /* and must not write */
};

/* 0: it was answered; -errno as of a command, -ETIME, -ENOBUFS: too much memory; -ENOENT: it is not known. */
int resp_script_run(struct resp_client *c, const struct resp_call *call);
/* Whether it can be compiled; false: it was answered. */
int resp_script_check(struct resp_client *c, const char *sha, const char *text, size_t len, bool *fine);

#endif
