/* main.c: in a build without libFuzzer: runs each file of the directories (or the files) named. */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

static unsigned ran;

static void run_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	uint8_t *data;
	long size;

	REQUIRE(file && fseek(file, 0, SEEK_END) == 0);
	size = ftell(file);
	rewind(file);
	data = malloc((size_t)size ? (size_t)size : 1);
	REQUIRE(data && fread(data, 1, (size_t)size, file) == (size_t)size);
	fclose(file);
	LLVMFuzzerTestOneInput(data, (size_t)size);
	free(data);
	ran++;
}

static void run_directory(const char *path)
{
	struct dirent **entry;
	int n = scandir(path, &entry, NULL, alphasort);
	char name[4096];

	REQUIRE(n >= 0);
	for (int i = 0; i < n; i++) {
		if (entry[i]->d_name[0] != '.') {
			snprintf(name, sizeof(name), "%s/%s", path, entry[i]->d_name);
			run_file(name);
		}
		free(entry[i]);
	}
	free(entry);
}

int main(int argc, char **argv)
{
	struct stat st;

	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '-') /* an option of libFuzzer */
			continue;
		REQUIRE(stat(argv[i], &st) == 0);
		if (S_ISDIR(st.st_mode))
			run_directory(argv[i]);
		else
			run_file(argv[i]);
	}
	printf("%u inputs\n", ran);
	return ran ? EXIT_SUCCESS : EXIT_FAILURE;
}
