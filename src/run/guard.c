/* guard.c: a process that waits for the end of this one, and then ends the process groups that are left, however this
 * one ended. */
#include "run/run.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A message to the guard; a group is removed when all of it has ended. */
struct word {
	pid_t group;
	bool remove;
};

static pid_t guard;
static int to_guard = -1;

static void group_forget(pid_t *group, size_t *count, pid_t which)
{
	for (size_t i = 0; i < *count; i++)
		if (group[i] == which)
			group[i--] = group[--*count];
}

/* Empties the directory that was opened, and removes the name if it still means that one: another may have been put
 * there. */
static bool remove_directory(const char *path, int fd)
{
	struct stat open, named;
	const struct dirent *entry;
	DIR *dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));

	if (dir)
		rewinddir(dir); /* both descriptors have one place in it */
	while (dir && (entry = readdir(dir)))
		unlinkat(fd, entry->d_name, 0);
	if (dir)
		closedir(dir);
	if (fstat(fd, &open) != 0 || lstat(path, &named) != 0 || open.st_dev != named.st_dev ||
	    open.st_ino != named.st_ino)
		return true;
	return rmdir(path) == 0 || errno != ENOTEMPTY;
}

static void guard_run(int from, const char *path, int directory)
{
	static pid_t group[RUN_RANKS_MAX + 1];
	struct word word;
	size_t count = 0;
	ssize_t n;

	while ((n = read(from, &word, sizeof(word))) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		if (n != (ssize_t)sizeof(word))
			continue; /* a signal */
		if (word.remove)
			group_forget(group, &count, word.group);
		else if (count < ARRAY_SIZE(group))
			group[count++] = word.group;
	}
	for (size_t i = 0; i < count; i++)
		kill(-group[i], SIGKILL);
	/* A killed process may still be creating files: retry. */
	for (int tries = 0; directory >= 0 && tries < 100 && !remove_directory(path, directory); tries++)
		usleep(10000);
}

int guard_start(const char *path, int directory)
{
	int fd[2];

	if (pipe2(fd, O_CLOEXEC) != 0) {
		run_say("cannot make a pipe: %s", strerror(errno));
		return -errno;
	}
	guard = fork();
	if (guard < 0) {
		run_say("cannot make a process: %s", strerror(errno));
		return -errno;
	}
	if (guard == 0) {
		setsid(); /* no terminal's signals; the others are blocked */
		close(fd[1]);
		for (int i = 0; i < 3; i++)
			close(i);
		guard_run(fd[0], path, directory);
		_exit(0);
	}
	close(fd[0]);
	to_guard = fd[1];
	return 0;
}

static void guard_tell(struct word word)
{
	if (to_guard >= 0 && write(to_guard, &word, sizeof(word)) != (ssize_t)sizeof(word))
		run_note("the guard is gone");
}

void guard_add(pid_t group)
{
	guard_tell((struct word){.group = group});
}

void guard_remove(pid_t group)
{
	guard_tell((struct word){.group = group, .remove = true});
}

void guard_stop(void)
{
	if (to_guard < 0)
		return;
	close(to_guard);
	to_guard = -1;
	waitpid(guard, NULL, 0);
}
