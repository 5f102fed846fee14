/*
 * mpi.c: what "rdmactl bench peer" measures, by MPI: the same loops, so that scripts/bench can put one beside the other.
 *
 *     mpicc -O2 -o bench-mpi mpi.c
 *     mpirun -n 4 ./bench-mpi latency,bcast,allreduce 64,1048576 200
 *
 * The arguments are works, bytes, and the milliseconds that each measurement takes at least. Rank 0 prints one JSON object.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW 64 /* messages under way in a stream */

static int rank, ranks;
static char *sent, *received; /* of each rank's part, for all ranks */
static size_t size;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Between ranks 0 and 1; the others wait for the next. Answers the seconds of `count` on this rank. */
static double pingpong(unsigned count)
{
	double begin = now();

	for (unsigned i = 0; i < count && rank < 2; i++) {
		if (rank == 0)
			MPI_Send(sent, (int)size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(received, (int)size, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(sent, (int)size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
	return (now() - begin) / 2;
}

static double stream(unsigned count)
{
	MPI_Request request[WINDOW];
	double begin = now();

	for (unsigned i = 0; i < count && rank < 2; i += WINDOW) {
		for (unsigned k = 0; k < WINDOW; k++) {
			if (rank == 0)
				MPI_Isend(sent, (int)size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request[k]);
			else
				MPI_Irecv(received, (int)size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request[k]);
		}
		MPI_Waitall(WINDOW, request, MPI_STATUSES_IGNORE);
	}
	if (rank == 0)
		MPI_Recv(received, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(sent, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	return now() - begin;
}

static void do_barrier(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

static void do_bcast(void)
{
	MPI_Bcast(sent, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void do_gather(void)
{
	MPI_Gather(sent, (int)size, MPI_BYTE, received, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void do_scatter(void)
{
	MPI_Scatter(sent, (int)size, MPI_BYTE, received, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void do_allgather(void)
{
	MPI_Allgather(sent, (int)size, MPI_BYTE, received, (int)size, MPI_BYTE, MPI_COMM_WORLD);
}

static void do_reduce(void)
{
	MPI_Reduce(sent, received, (int)(size / sizeof(float)), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void do_allreduce(void)
{
	MPI_Allreduce(sent, received, (int)(size / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void do_alltoall(void)
{
	MPI_Alltoall(sent, (int)size, MPI_BYTE, received, (int)size, MPI_BYTE, MPI_COMM_WORLD);
}

/* A string of each to rank 0, which puts them together; all of it to each. */
static void do_exchange(void)
{
	static char text[1 << 16];
	char own[256];
	int length;

	snprintf(own, sizeof(own), "a message of rank %d", rank);
	MPI_Gather(own, sizeof(own), MPI_BYTE, received, sizeof(own), MPI_BYTE, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		text[0] = '\0';
		for (int i = 0; i < ranks; i++)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s;", i ? " " : "",
				 received + (size_t)i * sizeof(own));
		length = (int)strlen(text) + 1;
	}
	MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Bcast(text, length, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static const struct {
	const char *name;
	double (*pair)(unsigned count);
	void (*all)(void);
	int sized;
} works[] = {
	{"latency", pingpong, NULL, 1},    {"bandwidth", stream, NULL, 1},      {"barrier", NULL, do_barrier, 0},
	{"bcast", NULL, do_bcast, 1},      {"gather", NULL, do_gather, 1},      {"scatter", NULL, do_scatter, 1},
	{"allgather", NULL, do_allgather, 1}, {"reduce", NULL, do_reduce, 1},   {"allreduce", NULL, do_allreduce, 1},
	{"alltoall", NULL, do_alltoall, 1}, {"exchange", NULL, do_exchange, 0},
};
#define WORKS (sizeof(works) / sizeof(works[0]))

/* Each is timed on each rank, with a barrier between two, and their mean is that of all ranks. */
static double run(unsigned work, unsigned count)
{
	double own = 0, all = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	if (works[work].pair) {
		all = works[work].pair(count);
	} else {
		for (unsigned i = 0; i < count; i++) {
			double begin = now();

			works[work].all();
			own += now() - begin;
			MPI_Barrier(MPI_COMM_WORLD);
		}
		MPI_Reduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
		all /= ranks;
	}
	return all;
}

/* Ever more, until it takes long enough, and then as many as take `seconds`. Those before it warm up. */
static double measure(unsigned work, double seconds)
{
	unsigned count = WINDOW, last = 0;
	double begin, took;

	for (;;) {
		begin = now();
		took = run(work, count);
		if (last)
			return took / count;
		if (rank == 0) {
			double whole = now() - begin;

			last = whole >= seconds / 8;
			count = last ? (unsigned)(count * seconds / whole) / WINDOW * WINDOW + WINDOW : count * 4;
		}
		MPI_Bcast(&count, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
		MPI_Bcast(&last, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
	}
}

static void print(const char *name, double seconds)
{
	static int rows;

	if (rank == 0)
		printf("%s{\"op\": \"%s\", \"size_bytes\": %zu, \"time_us\": %.4f, \"per_second\": %.1f}", rows++ ? ", " : "",
		       name, size, seconds * 1e6, 1 / seconds);
}

/* Whether a list separated by commas has a name. */
static int has(const char *list, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += length)
		if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length]))
			return 1;
	return 0;
}

static void measure_work(unsigned work, const char *sizes, double seconds)
{
	char *end;

	if (!works[work].sized) {
		size = 0;
		print(works[work].name, measure(work, seconds));
		return;
	}
	for (const char *at = sizes; *at; at = *end ? end + 1 : end) {
		size = strtoul(at, &end, 10);
		sent = realloc(sent, size * (size_t)ranks);
		received = realloc(received, size * (size_t)ranks);
		memset(sent, 0, size * (size_t)ranks);
		memset(received, 0, size * (size_t)ranks);
		print(works[work].name, measure(work, seconds));
	}
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 4)
		MPI_Abort(MPI_COMM_WORLD, 2);
	received = malloc((size_t)ranks * 256);
	if (rank == 0)
		printf("{\"ranks\": %d, \"results\": [", ranks);
	for (unsigned i = 0; i < WORKS; i++)
		if (has(argv[1], works[i].name))
			measure_work(i, argv[2], atof(argv[3]) / 1e3);
	if (rank == 0)
		puts("]}");
	free(sent);
	free(received);
	MPI_Finalize();
	return 0;
}
