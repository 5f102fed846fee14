/*
 * local.h: sockets whose other end is on this machine: the path of a UNIX socket, the user at the other end,
 * descriptors that are passed. Nothing is logged.
 *
 * The directory of a path is locked (flock) while a socket is bound in it or a stale one removed. So of two programs
 * that start at once one gets the path, and no socket is taken for stale between its bind() and listen(). Where there
 * is no such lock, as on some file systems, sockets are bound without it.
 *
 * Descriptors go from a server to its client only. Any client may connect, and pass some (SCM_RIGHTS). The
 * last close of what was passed may take as long as the sender likes: a TCP socket with unsent bytes and SO_LINGER, or
 * a file of FUSE. It comes in the thread that receives the bytes, even if it asks for no descriptor, or that closes the
 * socket with them unread. So a server reads by local_recv() and ends by local_close(), which do neither in the thread
 * of a loop.
 */
#ifndef RDMAD_BASE_LOCAL_H
#define RDMAD_BASE_LOCAL_H

#include "base/base.h"

#include <sys/un.h>

#define LOCAL_PATH sizeof(((struct sockaddr_un *)0)->sun_path)
#define LOCAL_UMASK ((mode_t)-1) /* the mode that the umask leaves */
#define LOCAL_PASSED 8           /* descriptors in one message */

/* The file that a listener's bind() made. Only that one is the listener's to remove: another may have removed it, and
 * another listener made one of the same name. */
struct local_file {
	char path[LOCAL_PATH + 1];
	dev_t device;
	ino_t inode; /* 0: there is none */
};
void local_file_of(const char *path, struct local_file *out);
/* Call it before the socket is closed, so that no other file has its inode. Safe in a signal handler. */
void local_file_remove(const struct local_file *made);

/* 0, or -ENAMETOOLONG. */
int local_address(const char *path, struct sockaddr_un *out);
/* A socket without waiting, that listens if it is SOCK_STREAM, and its file: none of an abstract address. In place of a
 * stale one, with that mode from the first connection on, and refusing descriptors. Or -errno; -EADDRINUSE: a program
 * has the path; -EEXIST: what is there is no socket; -EBUSY: the directory stays locked. Any thread; may wait a second.
 */
int local_listen(const struct sockaddr_un *at, socklen_t len, int type, mode_t mode, struct local_file *out);
/* There is a socket without a listener: a program that died left it behind. */
bool local_is_stale(const char *path);
/* Removes stale sockets of a directory, of the first so many. */
void local_sweep(const char *directory, unsigned most);
/* A connected socket; or -errno, of a limit that was exceeded -EAGAIN. `limit`: for this, and then for each send and
 * receive; 0: nothing waits. */
int local_connect(const char *path, uint64_t limit);

/* Process and user at the other end of a UNIX socket, as they were when it connected or listened. 0 or -errno. */
int local_peer(int fd, struct ucred *out);
/* Whether it is this process's user, or root: no other is trusted without more. */
bool local_is_own_user(uid_t uid);

/* For a listener, before it listens: a peer that passes a descriptor to an accepted socket gets EPERM. Of any other
 * socket, the same. False: this is a Linux before 6.16, which has no such option. */
bool local_refuse_passing(int fd);
/* A server's, with descriptors: as sendmsg() without waiting, to the peer, or where there is none to `to`. */
ssize_t local_pass(int fd, const struct sockaddr_un *to, socklen_t to_len, const void *bytes, size_t size,
		   const int *fds, unsigned count);
/* A client's: as recv() without waiting. fds[0] on are the caller's to close then, *came of them, at most `most`; the
 * kernel closes others. *came -EMFILE: this process has no room for any. */
ssize_t local_take(int fd, void *bytes, size_t size, int *fds, unsigned most, int *came);
/* A server's: as recv() without waiting, of any stream socket. EPERM: a descriptor comes with the next bytes, and
 * nothing was received. */
ssize_t local_recv(int fd, void *bytes, size_t size);
/* Closes any socket: one that has something unread in a thread of its own. */
void local_close(int fd);
#define LOCAL_CLOSING 64
/* So many wait there that their listener should accept no more for now. */
bool local_closing_full(void);

/* By the addresses of a TCP socket, may its other end be on this machine? A tunnel may have such addresses, too. */
bool local_is_near(int fd);
/* The user of that end. 0 or -errno: the kernel knows no such connection. Asks it by a socket of its own: once a
 * connection. */
int local_user(int fd, uid_t *uid);

#endif
