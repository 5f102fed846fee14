/* local.c: see local.h. */
#include "base/local.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define BACKLOG 4096
#define LOCK_LIMIT TIME_S /* for the lock of a directory, which its holders have for a moment */
#define LOCK_PAUSE 1000   /* us, between two tries */
#define WAITING 1024      /* sockets that are to be closed; no more than LOCAL_CLOSING and what was accepted before */

/* Sockets with something unread, which is closed with them. */
static struct {
	pthread_mutex_t lock;
	bool running;
	unsigned count;
	int fd[WAITING];
} closing = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A file's directory: its descriptor. -EBUSY: another program keeps it locked. Other errors: it has no such lock. */
static int directory_lock(const char *file)
{
	const char *slash = strrchr(file, '/');
	uint64_t until = time_now() + LOCK_LIMIT;
	char path[LOCAL_PATH + 1] = ".";
	int fd;

	if (slash)
		snprintf(path, sizeof(path), "%.*s", MAX((int)(slash - file), 1), file);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
		int error = errno;

		if (error == EWOULDBLOCK && time_now() < until) {
			usleep(LOCK_PAUSE);
			continue;
		}
		close(fd);
		return error == EWOULDBLOCK ? -EBUSY : -error;
	}
	return fd < 0 ? -errno : fd;
}

/* A child that was forked meanwhile may have the descriptor, too. */
static void directory_unlock(int fd)
{
	if (fd < 0)
		return;
	flock(fd, LOCK_UN);
	close(fd);
}

static void file_take(struct local_file *file)
{
	struct stat st;

	if (lstat(file->path, &st) == 0) {
		file->device = st.st_dev;
		file->inode = st.st_ino;
	}
}

void local_file_of(const char *path, struct local_file *out)
{
	*out = (struct local_file){.inode = 0};
	snprintf(out->path, sizeof(out->path), "%s", path);
	file_take(out);
}

void local_file_remove(const struct local_file *made)
{
	struct stat st;

	if (made->inode && lstat(made->path, &st) == 0 && st.st_ino == made->inode && st.st_dev == made->device)
		unlink(made->path);
}

int local_address(const char *path, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(out->sun_path))
		return -ENAMETOOLONG;
	strcpy(out->sun_path, path);
	return 0;
}

bool local_is_stale(const char *path)
{
	struct stat st;
	int fd;

	if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	fd = local_connect(path, 0);
	if (fd >= 0)
		close(fd);
	return fd == -ECONNREFUSED;
}

static int bind_file(int fd, const struct sockaddr_un *at, socklen_t len, mode_t mode, struct local_file *out)
{
	struct stat st;

	if (bind(fd, (const struct sockaddr *)at, len) != 0) {
		int rc = -errno;

		return rc == -EADDRINUSE && lstat(out->path, &st) == 0 && !S_ISSOCK(st.st_mode) ? -EEXIST : rc;
	}
	file_take(out);
	return mode == LOCAL_UMASK || chmod(out->path, mode) == 0 ? 0 : -errno;
}

int local_listen(const struct sockaddr_un *at, socklen_t len, int type, mode_t mode, struct local_file *out)
{
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), lock = -1, rc;

	*out = (struct local_file){.inode = 0};
	if (fd < 0)
		return -errno;
	local_refuse_passing(fd);
	memcpy(out->path, at->sun_path, len - offsetof(struct sockaddr_un, sun_path));
	if (out->path[0])
		lock = directory_lock(out->path);
	rc = lock == -EBUSY ? lock : 0;
	if (rc == 0 && local_is_stale(out->path) && unlink(out->path) != 0)
		rc = -errno;
	if (rc == 0)
		rc = bind_file(fd, at, len, mode, out);
	if (rc == 0 && type == SOCK_STREAM && listen(fd, BACKLOG) != 0)
		rc = -errno;
	if (rc != 0) {
		local_file_remove(out);
		*out = (struct local_file){.inode = 0};
		close(fd);
	}
	directory_unlock(lock);
	return rc != 0 ? rc : fd;
}

void local_sweep(const char *directory, unsigned most)
{
	char path[LOCAL_PATH + 1];
	struct dirent *entry;
	DIR *dir = opendir(directory);
	int lock;

	snprintf(path, sizeof(path), "%s/", directory);
	lock = directory_lock(path);
	while (lock >= 0 && dir && most && (entry = readdir(dir))) {
		int n = snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);

		if (entry->d_type != DT_SOCK || n >= (int)sizeof(path))
			continue;
		most--;
		if (local_is_stale(path))
			unlink(path);
	}
	directory_unlock(lock);
	if (dir)
		closedir(dir);
}

int local_connect(const char *path, uint64_t limit)
{
	struct address_socket to = {.len = sizeof(struct sockaddr_un)};
	int rc = local_address(path, (struct sockaddr_un *)&to.sa);

	return rc == 0 ? address_connect(&to, limit) : rc;
}

int local_peer(int fd, struct ucred *out)
{
	socklen_t len = sizeof(*out);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out, &len) == 0 ? 0 : -errno;
}

bool local_is_own_user(uid_t uid)
{
	return uid == geteuid() || uid == 0;
}

bool local_refuse_passing(int fd)
{
	int off = 0;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;
}

ssize_t local_recv(int fd, void *bytes, size_t size)
{
	struct iovec iov = {bytes, size};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	int on = 1;
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on)); /* else a byte out of band is dropped unseen */
	n = recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT);
	if (n <= 0)
		return n;
	if (m.msg_flags & MSG_CTRUNC) {
		errno = EPERM;
		return -1;
	}
	/* No more than was looked at: what has come meanwhile may have one. */
	return recv(fd, bytes, (size_t)n, MSG_DONTWAIT);
}

union passed {
	struct cmsghdr align;
	uint8_t space[CMSG_SPACE(LOCAL_PASSED * sizeof(int))];
};

ssize_t local_pass(int fd, const struct sockaddr_un *to, socklen_t to_len, const void *bytes, size_t size,
		   const int *fds, unsigned count)
{
	union passed control = {.space = {0}};
	struct iovec iov = {(void *)(uintptr_t)bytes, size};
	struct msghdr m = {.msg_name = (void *)(uintptr_t)to, .msg_namelen = to_len, .msg_iov = &iov, .msg_iovlen = 1};

	must(count <= LOCAL_PASSED);
	if (count) {
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
		memcpy(CMSG_DATA(&control.align), fds, count * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t local_take(int fd, void *bytes, size_t size, int *fds, unsigned most, int *came)
{
	union passed control;
	struct iovec iov = {bytes, size};
	/* The length, as in the space's padding there would be room for one more. */
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = CMSG_LEN(most * sizeof(int))};
	struct cmsghdr *c;
	ssize_t n;

	must(most <= LOCAL_PASSED);
	n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	c = n >= 0 ? CMSG_FIRSTHDR(&m) : NULL;
	*came = n >= 0 && m.msg_flags & MSG_CTRUNC ? -EMFILE : 0;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len > CMSG_LEN(0)) {
		*came = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), (size_t)*came * sizeof(int));
	}
	return n;
}

/* The oldest, which stays in its place until it is closed. */
static int closing_next(void)
{
	int fd;

	pthread_mutex_lock(&closing.lock);
	closing.running = closing.count;
	fd = closing.running ? closing.fd[0] : -1;
	pthread_mutex_unlock(&closing.lock);
	return fd;
}

static void closing_done(void)
{
	pthread_mutex_lock(&closing.lock);
	closing.count--;
	memmove(closing.fd, closing.fd + 1, closing.count * sizeof(*closing.fd));
	pthread_mutex_unlock(&closing.lock);
}

static void *closing_run(void *arg)
{
	for (int fd; (fd = closing_next()) >= 0; closing_done())
		close(fd);
	return arg;
}

/* False: it is the caller's to close. */
static bool closing_add(int fd)
{
	bool added;

	pthread_mutex_lock(&closing.lock);
	added = closing.count < WAITING;
	if (added)
		closing.fd[closing.count++] = fd;
	if (added && !closing.running) {
		pthread_t thread;

		closing.running = thread_start(&thread, "rdmad-close", closing_run, NULL) == 0;
		if (closing.running)
			pthread_detach(thread);
	}
	pthread_mutex_unlock(&closing.lock);
	return added;
}

bool local_closing_full(void)
{
	bool full;

	pthread_mutex_lock(&closing.lock);
	full = closing.count >= LOCAL_CLOSING;
	pthread_mutex_unlock(&closing.lock);
	return full;
}

void local_close(int fd)
{
	int domain = 0, unread = 0;
	socklen_t len = sizeof(domain);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
		shutdown(fd, SHUT_RDWR); /* nothing comes any more, and the sender hears so */
		if ((ioctl(fd, FIONREAD, &unread) != 0 || unread) && closing_add(fd))
			return;
	}
	close(fd);
}

/* The two ends of a TCP socket, its own first. */
struct ends {
	struct sockaddr_storage own, other;
};

static struct in6_addr number_of(const struct sockaddr_storage *sa)
{
	struct in6_addr number = {0};

	if (sa->ss_family == AF_INET)
		memcpy(&number, &((const struct sockaddr_in *)sa)->sin_addr, sizeof(struct in_addr));
	else
		number = ((const struct sockaddr_in6 *)sa)->sin6_addr;
	return number;
}

static bool ends_near(int fd, struct ends *ends)
{
	socklen_t own_len = sizeof(ends->own), other_len = sizeof(ends->other);
	struct in6_addr own, other;

	*ends = (struct ends){0};
	if (getsockname(fd, (struct sockaddr *)&ends->own, &own_len) != 0 ||
	    getpeername(fd, (struct sockaddr *)&ends->other, &other_len) != 0 || ends->own.ss_family == AF_UNIX)
		return false;
	own = number_of(&ends->own);
	other = number_of(&ends->other);
	return address_is_loopback((const struct sockaddr *)&ends->other) || IN6_ARE_ADDR_EQUAL(&own, &other);
}

bool local_is_near(int fd)
{
	struct ends ends;

	return ends_near(fd, &ends);
}

struct user_question {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

/* The socket that is the other end. The ports of both families are at one place. */
static void user_ask(const struct ends *ends, struct user_question *out)
{
	struct in6_addr own = number_of(&ends->own), other = number_of(&ends->other);
	struct inet_diag_sockid *id = &out->body.id;

	*out = (struct user_question){
		.head = {.nlmsg_len = sizeof(*out), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
		.body = {.sdiag_family = (uint8_t)ends->other.ss_family,
			 .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = 1u << TCP_ESTABLISHED},
	};
	id->idiag_sport = ((const struct sockaddr_in *)&ends->other)->sin_port;
	id->idiag_dport = ((const struct sockaddr_in *)&ends->own)->sin_port;
	memcpy(id->idiag_src, &other, sizeof(other));
	memcpy(id->idiag_dst, &own, sizeof(own));
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

int local_user(int fd, uid_t *uid)
{
	struct user_question question;
	struct {
		struct nlmsghdr head;
		struct inet_diag_msg body;
		uint8_t more[1024];
	} answer;
	struct ends ends;
	ssize_t n = -1;
	int diag;

	if (!ends_near(fd, &ends))
		return -ENOENT;
	diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
	if (diag < 0)
		return -errno;
	user_ask(&ends, &question);
	if (send(diag, &question, sizeof(question), 0) == (ssize_t)sizeof(question))
		n = recv(diag, &answer, sizeof(answer), 0);
	close(diag);
	if (n < (ssize_t)offsetof(typeof(answer), more) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return -ENOENT;
	/* One that its program has closed has no user, and would look as root's. */
	if (answer.body.idiag_state != TCP_ESTABLISHED || !answer.body.idiag_inode)
		return -ENOENT;
	*uid = answer.body.idiag_uid;
	return 0;
}
