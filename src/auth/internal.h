/* internal.h: what the files of auth share. */
#ifndef RDMAD_AUTH_INTERNAL_H
#define RDMAD_AUTH_INTERNAL_H

#include "auth/auth.h"

#include <sodium.h>

/*
 * file.c: the files of keys and clients.
 */
#define AUTH_FILE_MAX (16u << 20) /* bytes */

/* The text, which ends with 0. `secret`: others may not even read it. 0: auth_file_end() it, soon, as its memory may be
 * swapped out: to lock it takes longer than a connection's handshake. -ENOENT, or another -errno, which alone is
 * logged. */
int auth_file_read(const char *path, bool secret, char **text, size_t *length);
/* The same of a file that is open. */
int auth_file_read_open(int fd, const char *path, bool secret, char **text, size_t *length);
void auth_file_end(char *text, size_t length); /* wipes and frees */

/* The lines of a text that are not empty and no comment. */
struct auth_lines {
	const char *next, *end;
	const char *line; /* this one, without blanks at its ends */
	size_t length;
	unsigned number; /* from 1 on */
};
struct auth_lines auth_lines(const char *text, size_t length);
bool auth_lines_next(struct auth_lines *lines);

/*
 * keys.c, clients.c: tables of the text of a file, of which `path` is the name in messages.
 */
/* Parses a file of keys, which may have none where `empty`. */
int auth_keys_parse(const char *path, const char *text, size_t length, bool empty, struct auth_keys **out);
int auth_clients_parse(const char *path, const char *text, size_t length, const char *const *services,
		       struct auth_clients **out);

#endif
