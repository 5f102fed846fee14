/* bundle.c: a tar (POSIX ustar) of what was looked at. */
#include "ctl/doctor/doctor.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 512

struct bundle {
	FILE *out;
	int error;
	char **name; /* of what is there: nothing goes in twice */
	size_t names;
};

/* The header's fields, of which those of numbers are octal digits. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100], magic[8], user[32],
		group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

int bundle_open(const char *path, struct bundle **out)
{
	struct bundle *b = calloc(1, sizeof(*b));
	int fd = b ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1, rc;

	if (fd < 0 || !(b->out = fdopen(fd, "w"))) {
		rc = b ? -errno : -ENOMEM;
		if (fd >= 0)
			close(fd);
		free(b);
		return rc;
	}
	*out = b;
	return 0;
}

static bool is_new(struct bundle *b, const char *name)
{
	char **more;

	for (size_t i = 0; i < b->names; i++)
		if (strcmp(b->name[i], name) == 0)
			return false;
	more = realloc(b->name, (b->names + 1) * sizeof(*more));
	if (more)
		b->name = more;
	if (!more || !(more[b->names] = strdup(name))) {
		b->error = -ENOMEM;
		return false;
	}
	b->names++;
	return true;
}

static void bundle_put(struct bundle *b, const void *data, size_t len)
{
	if (len && fwrite(data, 1, len, b->out) != len && !b->error)
		b->error = errno ? -errno : -EIO;
}

/* False: the name is too long for it. */
static bool put_name(struct header *h, const char *name)
{
	const char *cut = name;
	size_t len = strlen(name);

	if (len > sizeof(h->name)) {
		cut = strchr(name + len - sizeof(h->name) - 1, '/');
		if (!cut || (size_t)(cut - name) > sizeof(h->prefix))
			return false;
		memcpy(h->prefix, name, (size_t)(cut - name));
		cut++;
	}
	memcpy(h->name, cut, strlen(cut));
	return true;
}

void bundle_add(struct bundle *b, const char *name, const void *data, size_t len)
{
	static const char zeros[BLOCK];
	struct header h = {
		.type = data ? '0' : '5', .magic = "ustar", .mode = "0000755", .uid = "0000000", .gid = "0000000"};
	unsigned sum = 0;
	char digits[16];

	name += strspn(name, "/");
	if (!is_new(b, name) || !put_name(&h, name))
		return;
	h.magic[6] = h.magic[7] = '0';
	snprintf(digits, sizeof(digits), "%011zo", len);
	memcpy(h.size, digits, sizeof(h.size));
	snprintf(digits, sizeof(digits), "%011llo", (unsigned long long)time(NULL));
	memcpy(h.mtime, digits, sizeof(h.mtime));
	memset(h.sum, ' ', sizeof(h.sum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((const unsigned char *)&h)[i];
	snprintf(digits, sizeof(digits), "%06o", sum);
	memcpy(h.sum, digits, 7);
	bundle_put(b, &h, sizeof(h));
	bundle_put(b, data, len);
	bundle_put(b, zeros, (BLOCK - len % BLOCK) % BLOCK);
}

int bundle_close(struct bundle *b)
{
	static const char end[2 * BLOCK];
	int rc;

	bundle_put(b, end, sizeof(end));
	if (fclose(b->out) != 0 && !b->error)
		b->error = -errno;
	for (size_t i = 0; i < b->names; i++)
		free(b->name[i]);
	free(b->name);
	rc = b->error;
	free(b);
	return rc;
}
