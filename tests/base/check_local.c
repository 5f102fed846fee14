/* check_local.c: the path of a UNIX socket, its file, the user at the other end, descriptors that are passed. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/local.h"
#include "tests/suite.h"

#define ROUNDS 40
#define STARTERS 6

static char directory[64];
static struct sockaddr_un at;

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void directory_make(void)
{
	strcpy(directory, "/tmp/check_local.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	ck_assert_int_eq(local_address(path_of("socket"), &at), 0);
}

static void directory_remove(void)
{
	unlink(at.sun_path);
	ck_assert_int_eq(rmdir(directory), 0); /* nothing else is left */
}

static int listen_here(struct local_file *file)
{
	return local_listen(&at, sizeof(at), SOCK_STREAM, LOCAL_UMASK, file);
}

static bool is_answered(void)
{
	int fd = local_connect(at.sun_path, TIME_S);

	return fd >= 0 && close(fd) == 0;
}

/* A socket whose program is gone. */
static void leave_behind(const char *path, int type)
{
	struct sockaddr_un gone;
	int fd = socket(AF_UNIX, type, 0);

	ck_assert_int_eq(local_address(path, &gone), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&gone, sizeof(gone)), 0);
	close(fd);
}

START_TEST(test_life)
{
	struct local_file file, other;
	mode_t before = umask(027);
	int fd = listen_here(&file), dgram;
	struct stat st;

	umask(before);
	ck_assert_int_ge(fd, 0);
	ck_assert_str_eq(file.path, at.sun_path);
	ck_assert_int_eq(stat(at.sun_path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0750);
	ck_assert(is_answered() && !local_is_stale(at.sun_path));
	local_file_of(at.sun_path, &other);
	ck_assert(other.inode == file.inode && other.device == file.device);
	local_file_remove(&file);
	local_close(fd);
	ck_assert_int_eq(access(at.sun_path, F_OK), -1);

	fd = local_listen(&at, sizeof(at), SOCK_STREAM, 0666, &file);
	ck_assert_int_eq(stat(at.sun_path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0666);
	local_file_remove(&file);
	close(fd);
	dgram = local_listen(&at, sizeof(at), SOCK_DGRAM, LOCAL_UMASK, &file);
	ck_assert_int_ge(dgram, 0);
	ck_assert_int_eq(listen_here(&other), -EADDRINUSE);
	local_file_remove(&file);
	close(dgram);
}
END_TEST

/* An abstract address has no file, and goes with its socket. */
START_TEST(test_abstract)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				    (size_t)snprintf(name.sun_path + 1, 64, "check_local-%d", (int)getpid()));
	struct local_file file;

	for (int i = 0; i < 2; i++) {
		int fd = local_listen(&name, len, SOCK_STREAM, LOCAL_UMASK, &file);

		ck_assert_int_ge(fd, 0);
		ck_assert(!file.inode && !file.path[0]);
		ck_assert_int_eq(local_listen(&name, len, SOCK_STREAM, LOCAL_UMASK, &file), -EADDRINUSE);
		local_file_remove(&file);
		close(fd);
	}
}
END_TEST

/* Only what nobody answers on is replaced. */
START_TEST(test_stale)
{
	struct local_file file, other;
	int fd, regular;

	leave_behind(at.sun_path, _i ? SOCK_DGRAM : SOCK_STREAM);
	ck_assert(local_is_stale(at.sun_path));
	fd = listen_here(&file);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(listen_here(&other), -EADDRINUSE);
	ck_assert(!other.inode && is_answered());
	local_file_remove(&other);
	ck_assert_int_eq(access(at.sun_path, F_OK), 0);
	local_file_remove(&file);
	close(fd);

	regular = open(at.sun_path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_eq(listen_here(&file), -EEXIST);
	ck_assert(!local_is_stale(at.sun_path));
	ck_assert_int_eq(access(at.sun_path, F_OK), 0);
	close(regular);
	unlink(at.sun_path);
	ck_assert_int_eq(symlink("nothing", at.sun_path), 0);
	ck_assert_int_eq(listen_here(&file), -EEXIST);
	ck_assert_int_eq(unlink(at.sun_path), 0);
}
END_TEST

/* It is another listener's by now: the first one's end does not take it away. */
START_TEST(test_file_of_another)
{
	struct local_file file, other;
	int fd = listen_here(&file), second;

	ck_assert_int_eq(unlink(at.sun_path), 0);
	second = listen_here(&other);
	ck_assert_int_ge(second, 0);
	local_file_remove(&file);
	close(fd);
	ck_assert(is_answered());
	local_file_remove(&other);
	close(second);
	local_file_remove(&other); /* once more does nothing */
}
END_TEST

/* Says what came of it, and has the path until it is ended. */
static void starter(int begin, int result)
{
	struct local_file file;
	char byte;
	int rc;

	if (read(begin, &byte, 1) != 0)
		_exit(1);
	rc = listen_here(&file);
	if (write(result, &rc, sizeof(rc)) != (ssize_t)sizeof(rc))
		_exit(1);
	pause();
}

/* All begin at once, beside what a program that died left behind: one has the path then, and is reached by it. */
START_TEST(test_starters_at_once)
{
	for (uint64_t round = suite_part(ROUNDS); round; round--) {
		int begin[2], result[2], rc, won = 0, status;
		pid_t child[STARTERS];

		leave_behind(at.sun_path, SOCK_STREAM);
		ck_assert_int_eq(pipe(begin), 0);
		ck_assert_int_eq(pipe(result), 0);
		for (int i = 0; i < STARTERS; i++) {
			child[i] = fork();
			if (child[i] == 0) {
				close(begin[1]);
				starter(begin[0], result[1]);
			}
		}
		close(begin[1]);
		for (int i = 0; i < STARTERS; i++) {
			ck_assert_int_eq(read(result[0], &rc, sizeof(rc)), sizeof(rc));
			ck_assert(rc >= 0 || rc == -EADDRINUSE);
			won += rc >= 0;
		}
		ck_assert_int_eq(won, 1);
		ck_assert(is_answered());
		for (int i = 0; i < STARTERS; i++) {
			ck_assert_int_eq(kill(child[i], SIGKILL), 0);
			ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
		}
		ck_assert(local_is_stale(at.sun_path));
		ck_assert_int_eq(unlink(at.sun_path), 0);
		close(begin[0]);
		close(result[0]);
		close(result[1]);
	}
}
END_TEST

/* Of a directory that stays locked nothing is taken or removed. */
START_TEST(test_locked)
{
	int lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	unsigned before = count_descriptors();
	struct local_file file;

	leave_behind(at.sun_path, SOCK_STREAM);
	ck_assert_int_eq(flock(lock, LOCK_EX), 0);
	ck_assert_int_eq(listen_here(&file), -EBUSY);
	local_sweep(directory, 10);
	ck_assert_int_eq(access(at.sun_path, F_OK), 0);
	ck_assert_uint_eq(count_descriptors(), before);
	close(lock);
	fd = listen_here(&file);
	ck_assert_int_ge(fd, 0);
	local_file_remove(&file);
	close(fd);
}
END_TEST

START_TEST(test_sweep)
{
	struct local_file file;
	int fd = listen_here(&file);

	leave_behind(path_of("one"), SOCK_STREAM);
	leave_behind(path_of("two"), SOCK_STREAM);
	close(open(path_of("regular"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	local_sweep(directory, 0);
	ck_assert(local_is_stale(path_of("one")) && local_is_stale(path_of("two")));
	local_sweep(directory, 10);
	ck_assert_int_eq(access(path_of("one"), F_OK), -1);
	ck_assert_int_eq(access(path_of("two"), F_OK), -1);
	ck_assert(is_answered());
	ck_assert_int_eq(unlink(path_of("regular")), 0);
	local_file_remove(&file);
	close(fd);
	local_sweep(path_of("nothing"), 10);
}
END_TEST

START_TEST(test_connect)
{
	char beyond[200];
	struct local_file file;
	struct ucred peer;
	int fd, accepted, more[2];

	memset(beyond, 'x', sizeof(beyond));
	beyond[sizeof(beyond) - 1] = '\0';
	ck_assert_int_eq(local_connect(beyond, TIME_S), -ENAMETOOLONG);
	ck_assert_int_eq(local_address(beyond, &at), -ENAMETOOLONG);
	ck_assert_int_eq(local_address(path_of("socket"), &at), 0);
	ck_assert_int_eq(local_connect(at.sun_path, TIME_S), -ENOENT);
	leave_behind(at.sun_path, SOCK_STREAM);
	ck_assert_int_eq(local_connect(at.sun_path, TIME_S), -ECONNREFUSED);
	fd = listen_here(&file);
	more[0] = local_connect(at.sun_path, TIME_S);
	accepted = accept(fd, NULL, NULL);
	ck_assert_int_eq(local_peer(accepted, &peer), 0);
	ck_assert(peer.pid == getpid() && peer.uid == geteuid() && local_is_own_user(peer.uid));
	ck_assert_int_eq(local_peer(more[0], &peer), 0);
	ck_assert(peer.pid == getpid() && peer.uid == geteuid());
	ck_assert(local_is_own_user(0) && !local_is_own_user(geteuid() + 1));
	ck_assert_int_lt(local_peer(-1, &peer), 0);
	close(more[0]);
	close(accepted);

	/* Where as many wait as may, the limit counts. */
	ck_assert_int_eq(listen(fd, 0), 0);
	more[0] = local_connect(at.sun_path, 0);
	ck_assert_int_ge(more[0], 0);
	ck_assert_int_eq(local_connect(at.sun_path, 0), -EAGAIN);
	ck_assert_int_eq(local_connect(at.sun_path, 20 * TIME_MS), -EAGAIN);
	ck_assert(!local_is_stale(at.sun_path));
	local_file_remove(&file);
	close(fd);
	close(more[0]);
}
END_TEST

START_TEST(test_pass)
{
	int ends[2], fds[LOCAL_PASSED], taken[LOCAL_PASSED], came;
	unsigned before = count_descriptors();
	struct rlimit limit, few;
	char bytes[8];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	ck_assert_int_eq(local_take(ends[1], bytes, sizeof(bytes), taken, 1, &came), -1);
	ck_assert(errno == EAGAIN && came == 0);
	for (int i = 0; i < LOCAL_PASSED; i++)
		fds[i] = ends[0];
	ck_assert_int_eq(local_pass(ends[0], NULL, 0, "abc", 3, fds, LOCAL_PASSED), 3);
	ck_assert_int_eq(local_take(ends[1], bytes, sizeof(bytes), taken, LOCAL_PASSED, &came), 3);
	ck_assert_int_eq(came, LOCAL_PASSED);
	for (int i = 0; i < came; i++) {
		ck_assert_int_eq(fcntl(taken[i], F_GETFD), FD_CLOEXEC);
		close(taken[i]);
	}

	/* More than are wanted; none; and more than this process may have. */
	for (unsigned most = 1; most <= 3; most++) {
		ck_assert_int_eq(local_pass(ends[0], NULL, 0, "abc", 3, fds, LOCAL_PASSED), 3);
		ck_assert_int_eq(local_take(ends[1], bytes, sizeof(bytes), taken, most, &came), 3);
		ck_assert_int_eq(came, (int)most);
		while (came)
			close(taken[--came]);
		ck_assert_uint_eq(count_descriptors(), before + 2);
	}
	ck_assert_int_eq(local_pass(ends[0], NULL, 0, "abc", 3, NULL, 0), 3);
	ck_assert_int_eq(local_take(ends[1], bytes, sizeof(bytes), taken, 1, &came), 3);
	ck_assert_int_eq(came, 0);
	ck_assert_int_eq(local_pass(ends[0], NULL, 0, "abc", 3, fds, 1), 3);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){.rlim_cur = 1, .rlim_max = limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(local_take(ends[1], bytes, sizeof(bytes), taken, 1, &came), 3);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(came, -EMFILE);
	close(ends[0]);
	close(ends[1]);
	ck_assert_uint_eq(count_descriptors(), before);
}
END_TEST

/* A server never has a descriptor of its client: the kernel refuses it, or a Linux before 6.16 says that one comes. */
START_TEST(test_client_passes)
{
	unsigned before = count_descriptors();
	int fd, client, ends[2], zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	struct local_file file;
	char bytes[8];
	bool refused;

	fd = listen_here(&file);
	client = local_connect(at.sun_path, TIME_S);
	ends[0] = accept(fd, NULL, NULL);
	ck_assert_int_eq(local_pass(client, NULL, 0, "a", 1, NULL, 0), 1);
	ck_assert_int_eq(local_recv(ends[0], bytes, sizeof(bytes)), 1);
	refused = local_pass(client, NULL, 0, "b", 1, &zero, 1) < 0;
	ck_assert(!refused || errno == EPERM);
	ck_assert_int_eq(local_recv(ends[0], bytes, sizeof(bytes)), -1);
	ck_assert_int_eq(errno, refused ? EAGAIN : EPERM);
	close(client);
	local_close(ends[0]);
	local_file_remove(&file);
	close(fd);

	/* A socket that does not refuse: nothing is received, however often that is asked. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	ck_assert_int_eq(local_pass(ends[0], NULL, 0, "b", 1, &zero, 1), 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(local_recv(ends[1], bytes, sizeof(bytes)), -1);
		ck_assert_int_eq(errno, EPERM);
	}
	close(ends[0]);
	close(zero);
	local_close(ends[1]);
	while (count_descriptors() != before) /* until the thread has closed it */
		poll(NULL, 0, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("local");
	TCase *tc = suite_case(suite, "path", directory_make, directory_remove);

	tcase_add_test(tc, test_life);
	tcase_add_test(tc, test_abstract);
	tcase_add_loop_test(tc, test_stale, 0, 2);
	tcase_add_test(tc, test_file_of_another);
	tcase_add_test(tc, test_starters_at_once);
	tcase_add_test(tc, test_locked);
	tcase_add_test(tc, test_sweep);
	tcase_add_test(tc, test_connect);
	tcase_add_test(tc, test_pass);
	tcase_add_test(tc, test_client_passes);
	return suite_run(suite);
}
