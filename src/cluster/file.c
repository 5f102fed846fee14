/* file.c: a table out of its file. */
#include "cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>

int cluster_load(const char *path, struct cluster_table *out)
{
	FILE *file = fopen(path, "re");
	size_t length = 0;
	char *text;
	int rc = 0;

	if (!file)
		return log_fail(-errno, "cluster", "%s: %m", path);
	text = malloc(CLUSTER_TEXT_MAX + 1);
	if (text)
		length = fread(text, 1, CLUSTER_TEXT_MAX + 1, file);
	if (!text)
		rc = log_fail(-ENOMEM, "cluster", "%s: no memory", path);
	else if (ferror(file))
		rc = log_fail(-EIO, "cluster", "%s: cannot be read", path);
	else
		rc = cluster_parse(path, text, length, out);
	fclose(file);
	free(text);
	return rc;
}
