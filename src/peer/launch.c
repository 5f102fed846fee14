/*
 * launch.c: the environment that launchers give their programs: rank, size, and the name of the group, by a table whose
 * first row that is whole wins. A launcher that runs inside another one leaves the outer one's variables to its
 * programs, so inner ones stand first: mpirun, mpiexec and torchrun start in a step of Slurm, which is told by values.
 */
#include "peer/peer.h"

#include <stdlib.h>

#define NAMED 4 /* variables of a group's name */

static const struct launcher {
	const char *name, *rank, *size;
	const char *prefix;       /* of the group's name */
	const char *named[NAMED]; /* must be set; their values follow the prefix */
	const char *perhaps;      /* follows them if it is set */
	const char *job;          /* this variable's value... */
	bool of_step;             /* ...has to be of the step of Slurm that the program is in, or must not */
	bool pmix;
} launchers[] = {
	{.name = "rdmarun", .rank = "RDMA_RANK", .size = "RDMA_SIZE", .named = {"RDMA_GROUP"}},
	{.name = "torchrun",
	 .rank = "RANK",
	 .size = "WORLD_SIZE",
	 .prefix = "torch",
	 .named = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
	/* Slurm sets these, too, with a job's name, where it speaks PMI-2. */
	{.name = "mpiexec",
	 .rank = "PMI_RANK",
	 .size = "PMI_SIZE",
	 .prefix = "mpi",
	 .perhaps = "PMI_JOBID",
	 .job = "PMI_JOBID"},
	{.name = "srun --mpi=pmix",
	 .rank = "PMIX_RANK",
	 .size = "SLURM_STEP_NUM_TASKS",
	 .named = {"PMIX_NAMESPACE"},
	 .job = "PMIX_NAMESPACE",
	 .of_step = true,
	 .pmix = true},
	{.name = "mpirun",
	 .rank = "PMIX_RANK",
	 .size = "OMPI_COMM_WORLD_SIZE",
	 .named = {"PMIX_NAMESPACE"},
	 .job = "PMIX_NAMESPACE",
	 .pmix = true},
	{.name = "srun",
	 .rank = "SLURM_PROCID",
	 .size = "SLURM_STEP_NUM_TASKS",
	 .prefix = "slurm",
	 .named = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
	{.name = "torch",
	 .rank = "RANK",
	 .size = "WORLD_SIZE",
	 .prefix = "torch",
	 .named = {"MASTER_ADDR", "MASTER_PORT"}},
	{.name = "Kubernetes", .rank = "JOB_COMPLETION_INDEX", .size = "RDMA_SIZE", .named = {"RDMA_GROUP"}},
};

/* NULL: it is not set, or empty and may be. */
static const char *value_of(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value && *value ? value : NULL;
}

/* "4.0", or "slurm.pmix.4.0", in step 0 of job 4. */
static bool is_of_step(const char *text)
{
	const char *job = value_of("SLURM_JOB_ID"), *step = value_of("SLURM_STEP_ID");
	char name[64];
	size_t length;

	if (!text || !job || !step)
		return false;
	length = (size_t)snprintf(name, sizeof(name), ".%s.%s", job, step);
	if (length >= sizeof(name))
		return false;
	return strcmp(text, name + 1) == 0 ||
	       (strlen(text) >= length && strcmp(text + strlen(text) - length, name) == 0);
}

static bool launcher_is_whole(const struct launcher *l)
{
	bool whole = secure_getenv(l->rank) && secure_getenv(l->size);

	for (int i = 0; i < NAMED && l->named[i]; i++)
		whole = whole && secure_getenv(l->named[i]);
	return whole && (!l->job || is_of_step(value_of(l->job)) == l->of_step);
}

static const struct launcher *launcher_find(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++)
		if (launcher_is_whole(&launchers[i]))
			return &launchers[i];
	return NULL;
}

/* None is whole: which variables there are, and which are missing. */
static int launch_missing(void)
{
	char words[400] = "";
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++) {
		const struct launcher *l = &launchers[i];
		const char *names[NAMED + 2] = {l->rank, l->size}, *set = NULL, *missing = NULL;

		memcpy(names + 2, l->named, sizeof(l->named));
		for (int k = 0; k < NAMED + 2 && names[k]; k++)
			if (secure_getenv(names[k]))
				set = set ? set : names[k];
			else
				missing = missing ? missing : names[k];
		if (set && missing && used < sizeof(words))
			used += (size_t)snprintf(words + used, sizeof(words) - used, "%s%s is set, and %s is not (%s)",
						 used ? "; " : "", set, missing, l->name);
	}
	return rdma_fail(-EINVAL, "No launcher has told this program its rank: %s; see rdmarun(1), Other launchers",
			 used ? words : "neither RDMA_RANK nor another's variable is set");
}

/* A number of the environment. False: rdma_fail() was called. */
static bool launch_number(const struct launcher *l, const char *variable, int least, int *out)
{
	const char *text = secure_getenv(variable);
	char shown[48];
	uint64_t number;

	if (units_parse_number(text, (uint64_t)least, WIRE_PEER_MEMBERS_MAX, &number) == 0) {
		*out = (int)number;
		return true;
	}
	log_printable(text, shown, sizeof(shown));
	rdma_fail(-EINVAL, "%s is \"%.40s\", which is no number that it can be (%s)", variable, shown, l->name);
	return false;
}

/* The next part of a group's name. */
static void name_add(char *name, size_t *length, const char *text)
{
	if (!text)
		return;
	if (*length < WIRE_PEER_NAME_MAX)
		snprintf(name + *length, WIRE_PEER_NAME_MAX + 1 - *length, "%s%s", *length ? "." : "", text);
	*length += strlen(text) + (*length ? 1 : 0);
}

/* RDMA_GROUP tells groups of one run apart, and runs of launchers that name none. */
static int launch_name(const struct launcher *l, char name[static WIRE_PEER_NAME_MAX + 1])
{
	const char *group = secure_getenv("RDMA_GROUP");
	size_t length = 0, own = 0;

	name[0] = '\0';
	name_add(name, &length, l->prefix);
	own = length;
	for (int i = 0; i < NAMED && l->named[i]; i++) {
		const char *value = secure_getenv(l->named[i]);

		if (!*value)
			return rdma_fail(-EINVAL, "%s is \"\", which is no part of a group's name (%s)", l->named[i],
					 l->name);
		name_add(name, &length, value);
		if (strcmp(l->named[i], "RDMA_GROUP") == 0)
			group = NULL;
	}
	name_add(name, &length, l->perhaps ? value_of(l->perhaps) : NULL);
	name_add(name, &length, group && *group ? group : NULL);
	if (length == own)
		return rdma_fail(-EINVAL,
				 "%s tells no name of the run: give all its ranks the same RDMA_GROUP, which no other "
				 "run has",
				 l->name);
	if (length > WIRE_PEER_NAME_MAX)
		return rdma_fail(-EINVAL,
				 "The group's name has %zu bytes by the variables of %s; from 1 to %u are allowed",
				 length, l->name, WIRE_PEER_NAME_MAX);
	if (!wire_printable(name, length))
		return rdma_fail(-EINVAL, "The group's name by the variables of %s has a control character", l->name);
	return 0;
}

int launch_read(struct launch *out)
{
	const struct launcher *l = launcher_find();

	if (!l)
		return launch_missing();
	*out = (struct launch){.launcher = l->name, .meeting = value_of("RDMA_MEETING")};
	if (!out->meeting)
		out->meeting = value_of("RDMAD_HOST");
	if (l->pmix)
		out->nspace = secure_getenv("PMIX_NAMESPACE");
	if (!launch_number(l, l->rank, 0, &out->rank) || !launch_number(l, l->size, 1, &out->size))
		return -1;
	if (out->rank >= out->size)
		return rdma_fail(-EINVAL, "%s is %d, and %s is %d: there is no such rank (%s)", l->rank, out->rank,
				 l->size, out->size, l->name);
	return launch_name(l, out->group);
}

const char *rdma_launcher(void)
{
	const struct launcher *l = launcher_find();

	return l ? l->name : NULL;
}
