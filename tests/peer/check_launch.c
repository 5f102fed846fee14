/* check_launch.c: what launchers say in the environment: each row of the table, rows inside others, and hostile values. */
#include "peer/peer.h"

#include "tests/suite.h"

#define RDMA(rank, size, group) "RDMA_RANK=" rank, "RDMA_SIZE=" size, "RDMA_GROUP=" group
#define TORCH(rank, size) "RANK=" rank, "WORLD_SIZE=" size, "MASTER_ADDR=node1", "MASTER_PORT=29500"
#define MPICH(rank, size) "PMI_RANK=" rank, "PMI_SIZE=" size
#define PMIX(rank, job) "PMIX_RANK=" rank, "PMIX_NAMESPACE=" job
#define OPEN_MPI(rank, size) PMIX(rank, "1585119233"), "OMPI_COMM_WORLD_SIZE=" size
#define STEP(rank, size, job, step)                                                                                    \
	"SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=" size, "SLURM_JOB_ID=" job, "SLURM_STEP_ID=" step
#define LONG "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

/* The environment of a process that nobody has launched, and these. */
static void environment(const char *const *variables)
{
	clearenv();
	for (; *variables; variables++)
		ck_assert_int_eq(putenv((char *)(uintptr_t)*variables), 0);
}

static const struct {
	const char *variables[12];
	const char *launcher;
	int rank, size;
	const char *group, *meeting, *nspace;
} good[] = {
	{{RDMA("2", "4", "run")}, "rdmarun", 2, 4, "run", NULL, NULL},
	{{RDMA("0", "1", "run"), "RDMA_MEETING=unix:///s", "RDMAD_HOST=h"}, "rdmarun", 0, 1, "run", "unix:///s", NULL},
	{{RDMA("0", "1", "run"), "RDMAD_HOST=h"}, "rdmarun", 0, 1, "run", "h", NULL},
	{{RDMA("0", "1", "run"), "RDMA_MEETING=", "RDMAD_HOST="}, "rdmarun", 0, 1, "run", NULL, NULL},
	{{RDMA("4095", "4096", "run")}, "rdmarun", 4095, 4096, "run", NULL, NULL},
	{{RDMA("0", "1", LONG LONG LONG LONG)}, "rdmarun", 0, 1, LONG LONG LONG LONG, NULL, NULL},
	{{TORCH("1", "2")}, "torch", 1, 2, "torch.node1.29500", NULL, NULL},
	{{TORCH("1", "2"), "TORCHELASTIC_RUN_ID=none"}, "torchrun", 1, 2, "torch.none.node1.29500", NULL, NULL},
	{{MPICH("1", "2"), "PMI_JOBID=job7"}, "mpiexec", 1, 2, "mpi.job7", NULL, NULL},
	{{MPICH("1", "2"), "RDMA_GROUP=mine"}, "mpiexec", 1, 2, "mpi.mine", NULL, NULL},
	{{MPICH("1", "2"), "PMI_JOBID=job7", "RDMA_GROUP=b"}, "mpiexec", 1, 2, "mpi.job7.b", NULL, NULL},
	{{OPEN_MPI("3", "4")}, "mpirun", 3, 4, "1585119233", NULL, "1585119233"},
	{{OPEN_MPI("3", "4"), "RDMA_GROUP=b", "RDMA_MEETING=m"}, "mpirun", 3, 4, "1585119233.b", "m", "1585119233"},
	{{STEP("1", "2", "7", "0")}, "srun", 1, 2, "slurm.7.0", NULL, NULL},
	{{STEP("1", "2", "7", "0"), "SLURM_NTASKS=16", "RDMA_GROUP="}, "srun", 1, 2, "slurm.7.0", NULL, NULL},
	{{STEP("1", "2", "7", "0"), PMIX("1", "slurm.pmix.7.0")},
	 "srun --mpi=pmix",
	 1,
	 2,
	 "slurm.pmix.7.0",
	 NULL,
	 "slurm.pmix.7.0"},
	{{STEP("1", "2", "7", "0"), MPICH("1", "2"), "PMI_JOBID=7.0"},
	 "srun",
	 1,
	 2,
	 "slurm.7.0",
	 NULL,
	 NULL}, /* pmi2 */
	{{"JOB_COMPLETION_INDEX=3", "RDMA_SIZE=4", "RDMA_GROUP=job-x"}, "Kubernetes", 3, 4, "job-x", NULL, NULL},
	/* The inner one of two. */
	{{STEP("0", "1", "7", "0"), RDMA("2", "4", "run")}, "rdmarun", 2, 4, "run", NULL, NULL},
	{{STEP("0", "2", "7", "0"), OPEN_MPI("3", "4")}, "mpirun", 3, 4, "1585119233", NULL, "1585119233"},
	{{STEP("0", "2", "7", "0"), OPEN_MPI("3", "4"), MPICH("0", "2"), "PMI_JOBID=7.0"},
	 "mpirun",
	 3,
	 4,
	 "1585119233",
	 NULL,
	 "1585119233"},
	{{STEP("0", "2", "7", "0"), MPICH("3", "4"), "RDMA_GROUP=g"}, "mpiexec", 3, 4, "mpi.g", NULL, NULL},
	{{STEP("0", "2", "7", "0"), PMIX("0", "slurm.pmix.7.0"), MPICH("3", "4"), "RDMA_GROUP=g"},
	 "mpiexec",
	 3,
	 4,
	 "mpi.g",
	 NULL,
	 NULL},
	{{STEP("0", "2", "7", "0"), TORCH("3", "4"), "TORCHELASTIC_RUN_ID=r"},
	 "torchrun",
	 3,
	 4,
	 "torch.r.node1.29500",
	 NULL,
	 NULL},
	{{STEP("3", "4", "7", "0"), TORCH("3", "4")}, "srun", 3, 4, "slurm.7.0", NULL, NULL},
	{{STEP("1", "2", "7", "1"), PMIX("0", "slurm.pmix.7.0")}, "srun", 1, 2, "slurm.7.1", NULL, NULL},
	{{STEP("1", "2", "7", "0"), PMIX("0", "slurm.pmix.17.0")}, "srun", 1, 2, "slurm.7.0", NULL, NULL},
	/* A row that is not whole gives way. */
	{{"RDMA_RANK=0", STEP("1", "2", "7", "0")}, "srun", 1, 2, "slurm.7.0", NULL, NULL},
	{{PMIX("1", "9"), STEP("1", "2", "7", "0")}, "srun", 1, 2, "slurm.7.0", NULL, NULL},
	{{TORCH("1", "2"), "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}, "torch", 1, 2, "torch.node1.29500", NULL, NULL},
};

static const char *said(const char *text)
{
	return text ? text : "(none)";
}

START_TEST(test_launch)
{
	struct launch got;

	environment(good[_i].variables);
	ck_assert_msg(launch_read(&got) == 0, "%s", rdma_get_error());
	ck_assert_str_eq(got.launcher, good[_i].launcher);
	ck_assert_str_eq(said(rdma_launcher()), good[_i].launcher);
	ck_assert_int_eq(got.rank, good[_i].rank);
	ck_assert_int_eq(got.size, good[_i].size);
	ck_assert_str_eq(got.group, good[_i].group);
	ck_assert_str_eq(said(got.meeting), said(good[_i].meeting));
	ck_assert_str_eq(said(got.nspace), said(good[_i].nspace));
}
END_TEST

static const struct {
	const char *variables[12];
	const char *words;
} bad[] = {
	{{NULL},
	 "No launcher has told this program its rank: neither RDMA_RANK nor another's variable is set; see rdmarun(1)"},
	{{"RDMA_RANK=0"}, "RDMA_RANK is set, and RDMA_SIZE is not (rdmarun)"},
	{{"RDMA_RANK=0", "RDMA_SIZE=1"}, "RDMA_RANK is set, and RDMA_GROUP is not (rdmarun)"},
	{{"SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_JOB_ID=7"},
	 "SLURM_PROCID is set, and SLURM_STEP_NUM_TASKS is not (srun)"},
	{{PMIX("0", "9")}, "PMIX_RANK is set, and OMPI_COMM_WORLD_SIZE is not (mpirun)"},
	{{"JOB_COMPLETION_INDEX=0"}, "JOB_COMPLETION_INDEX is set, and RDMA_SIZE is not (Kubernetes)"},
	{{MPICH("0", "2")}, "mpiexec tells no name of the run: give all its ranks the same RDMA_GROUP"},
	{{MPICH("0", "2"), "RDMA_GROUP="}, "mpiexec tells no name of the run"},
	{{STEP("0", "2", "7", "0"), MPICH("3", "4")},
	 "mpiexec tells no name of the run"}, /* and is no rank of Slurm's */
	{{RDMA("", "4", "run")}, "RDMA_RANK is \"\", which is no number that it can be (rdmarun)"},
	{{RDMA("0", "", "run")}, "RDMA_SIZE is \"\", which is no number that it can be (rdmarun)"},
	{{RDMA("0", "0", "run")}, "RDMA_SIZE is \"0\""},
	{{RDMA("0", "4097", "run")}, "RDMA_SIZE is \"4097\""},
	{{RDMA("4097", "4096", "run")}, "RDMA_RANK is \"4097\""},
	{{RDMA("4", "4", "run")}, "RDMA_RANK is 4, and RDMA_SIZE is 4: there is no such rank (rdmarun)"},
	{{RDMA("-1", "4", "run")}, "RDMA_RANK is \"-1\""},
	{{RDMA("+1", "4", "run")}, "RDMA_RANK is \"+1\""},
	{{RDMA(" 1", "4", "run")}, "RDMA_RANK is \" 1\""},
	{{RDMA("1 ", "4", "run")}, "RDMA_RANK is \"1 \""},
	{{RDMA("0x1", "4", "run")}, "RDMA_RANK is \"0x1\""},
	{{RDMA("1e1", "4", "run")}, "RDMA_RANK is \"1e1\""},
	{{RDMA("18446744073709551616", "4", "run")}, "RDMA_RANK is \"18446744073709551616\""},
	{{RDMA("1\n\033[2J", "4", "run")}, "RDMA_RANK is \"1\\x0a\\x1b[2J\""},
	{{RDMA(LONG, "4", "run")}, "RDMA_RANK is \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\", which"},
	{{RDMA("0", "4", "")}, "RDMA_GROUP is \"\", which is no part of a group's name (rdmarun)"},
	{{RDMA("0", "4", LONG LONG LONG LONG "y")}, "name has 201 bytes by the variables of rdmarun; from 1 to 200"},
	{{RDMA("0", "4", "a\tb")}, "name by the variables of rdmarun has a control character"},
	{{STEP("0", "4", "", "0")}, "SLURM_JOB_ID is \"\""},
	{{STEP("0", "4", "7", LONG LONG LONG LONG)}, "name has 208 bytes by the variables of srun"},
	{{STEP("0", "4", "7", "0"), "RDMA_GROUP=" LONG LONG LONG LONG LONG LONG}, "name has 310 bytes"},
	{{STEP("4", "4", "7", "0")}, "SLURM_PROCID is 4, and SLURM_STEP_NUM_TASKS is 4"},
	{{OPEN_MPI("1", "many")}, "OMPI_COMM_WORLD_SIZE is \"many\", which is no number that it can be (mpirun)"},
	{{PMIX("0", ""), "OMPI_COMM_WORLD_SIZE=1"}, "PMIX_NAMESPACE is \"\""},
	{{TORCH("2", "2"), "TORCHELASTIC_RUN_ID=r"},
	 "RANK is 2, and WORLD_SIZE is 2: there is no such rank (torchrun)"},
	{{"JOB_COMPLETION_INDEX=9", "RDMA_SIZE=4", "RDMA_GROUP=j"}, "JOB_COMPLETION_INDEX is 9, and RDMA_SIZE is 4"},
};

START_TEST(test_refused)
{
	struct launch got;

	environment(bad[_i].variables);
	ck_assert_int_eq(launch_read(&got), -1);
	ck_assert_int_eq(rdma_get_errno(), EINVAL);
	ck_assert_msg(strstr(rdma_get_error(), bad[_i].words), "%s", rdma_get_error());
	ck_assert_ptr_null(rdma_group_run(NULL));
	ck_assert_msg(strstr(rdma_get_error(), bad[_i].words), "%s", rdma_get_error());
}
END_TEST

/* Every variable is set, as long as may be: no row says more than it has room for. */
START_TEST(test_long)
{
	static const char *const names[] = {
		"RDMA_RANK",
		"RDMA_SIZE",
		"RANK",
		"WORLD_SIZE",
		"TORCHELASTIC_RUN_ID",
		"MASTER_ADDR",
		"MASTER_PORT",
		"PMI_RANK",
		"PMI_SIZE",
		"PMI_JOBID",
		"PMIX_RANK",
		"PMIX_NAMESPACE",
		"OMPI_COMM_WORLD_SIZE",
		"SLURM_PROCID",
		"SLURM_JOB_ID",
		"SLURM_STEP_ID",
		"SLURM_STEP_NUM_TASKS",
		"JOB_COMPLETION_INDEX",
		"RDMA_GROUP",
	};
	size_t length = 100000;
	char *value = malloc(length + 1);
	struct launch got;

	ck_assert_ptr_nonnull(value);
	memset(value, '1', length);
	value[length] = '\0';
	clearenv();
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		setenv(names[i], value, 1);
	for (size_t i = 0; i < ARRAY_SIZE(names);
	     i++) { /* each row once; a number that is one, and names that are long */
		ck_assert_int_eq(launch_read(&got), -1);
		if (strstr(names[i], "RANK") || strstr(names[i], "SIZE") || strstr(names[i], "PROCID"))
			unsetenv(names[i]);
	}
	clearenv();
	setenv("PMI_RANK", "0", 1);
	setenv("PMI_SIZE", "1", 1);
	setenv("PMI_JOBID", value, 1);
	ck_assert_int_eq(launch_read(&got), -1);
	ck_assert_msg(strstr(rdma_get_error(), "name has 100004 bytes by the variables of mpiexec"), "%s",
		      rdma_get_error());
	free(value);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("launch");
	TCase *tc = suite_case(suite, "environment", NULL, NULL);

	tcase_add_loop_test(tc, test_launch, 0, (int)ARRAY_SIZE(good));
	tcase_add_loop_test(tc, test_refused, 0, (int)ARRAY_SIZE(bad));
	tcase_add_test(tc, test_long);
	return suite_run(suite);
}
