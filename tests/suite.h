/* suite.h: what test programs have in common: how a suite is made and run, and what they count of a process. */
#ifndef RDMAD_TESTS_SUITE_H
#define RDMAD_TESTS_SUITE_H

#include <check.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Each assertion that holds tells check where it stands, by a write to a file that is read behind the test: that is said of a test that
 * dies. Some tests assert millions of times, and most of their time went there. So each one tells it the first time.
 */
#define _mark_point(file, line)                                                                                        \
	({                                                                                                             \
		static atomic_bool marked;                                                                             \
		if (!atomic_load_explicit(&marked, memory_order_relaxed)) {                                            \
			atomic_store_explicit(&marked, true, memory_order_relaxed);                                    \
			(_mark_point)(file, line);                                                                     \
		}                                                                                                      \
		(void)0;                                                                                               \
	})

/* A case with a fixture, or without (NULL). The limit only ends a test that hangs. */
static inline TCase *suite_case(Suite *suite, const char *name, void (*up)(void), void (*down)(void))
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 240);
	if (up || down)
		tcase_add_checked_fixture(tc, up, down);
	suite_add_tcase(suite, tc);
	return tc;
}

/* The exit status. */
static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Of so much repetition: RDMAD_TEST_PART=10 asks for a tenth, and at least for one. It is for machines that are emulated or
 * watched, and for builds that only repeat what another one has tested. */
static inline uint64_t suite_part(uint64_t whole)
{
	const char *part = getenv("RDMAD_TEST_PART");
	char *end = NULL;
	uint64_t parts = part ? strtoul(part, &end, 10) : 1;

	if (!parts || (part && (*part < '0' || *part > '9' || *end))) {
		fprintf(stderr, "RDMAD_TEST_PART=%s is not a number from 1 on\n", part);
		exit(EXIT_FAILURE);
	}
	return whole > parts ? whole / parts : 1;
}

/* Where to be reached: by its device where there is one. */
static inline const char *suite_address(void)
{
	const char *guest = getenv("RDMAD_GUEST_ADDR");

	return guest ? guest : "127.0.0.1";
}

/* The text of a file of the sources; free() it. */
static inline char *suite_source(const char *name)
{
	const char *dir = getenv("srcdir");
	char *text = calloc(1, 1 << 20), path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir ? dir : ".", name);
	file = fopen(path, "r");
	ck_assert_msg(file, "%s: %m", path);
	ck_assert_uint_lt(fread(text, 1, 1 << 20, file), 1 << 20);
	fclose(file);
	return text;
}

/* Of a directory, with its own two. */
static inline unsigned count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* For comparison: the one that counts is among them. */
static inline unsigned count_descriptors(void)
{
	return count_entries("/proc/self/fd");
}

/* Of memory without a name. */
static inline unsigned count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned n = 0;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		n += strstr(line, "memfd:") != NULL;
	fclose(file);
	return n;
}

#endif
