/*
 * verbs_shim.h: between rdma-core and a program, preloaded: Soft-RoCE looks like other devices.
 *
 *   verbs_shim.c         shapes: what a device lacks, limits and loses
 *   verbs_shim_events.c  commands: what goes wrong while a program runs
 *
 * VERBS_SHIM=SHAPE,... chooses shapes; VERBS_SHIM=help prints all, and the commands. A command is given as
 * verbs_shim_do("NAME"), found by dlsym(), or written into the file of the shape file=PATH.
 */
#ifndef RDMAD_TESTS_VERBS_SHIM_H
#define RDMAD_TESTS_VERBS_SHIM_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define SHIM_EXPORT __attribute__((visibility("default")))

/* One row for each shape: its name in VERBS_SHIM and what it is. Those with a value are NAME=VALUE. */
#define SHAPES(ROW)                                                                                                    \
	ROW(drop_on_destroy, "completions of a destroyed queue pair vanish, like those of mlx5, mlx4 and hns")         \
	ROW(last_wqe, "a queue pair of shared receives that is put into error brings QP_LAST_WQE_REACHED")             \
	ROW(no_srq, "no shared receive queues")                                                                        \
	ROW(no_rc, "no reliable connections")                                                                          \
	ROW(dmabuf, "dmabufs can be registered, if they can be mapped")                                                \
	ROW(no_windows, "no memory windows")                                                                           \
	ROW(no_atomics, "no atomic operations")                                                                        \
	ROW(no_write_imm, "no write with immediate")                                                                   \
	ROW(iwarp, "transport iWARP: no write with immediate, no numbers of reads in a queue pair's attributes, "      \
		   "sinks of reads need remote write access")                                                          \
	ROW(no_depths, "connection events do not tell numbers of reads")                                               \
	ROW(inline_size, "=N: inline data of at most N bytes")                                                         \
	ROW(max_wr, "=N: queues of at most N work requests, shared ones too")                                          \
	ROW(max_sge, "=N: at most N pieces of memory in a work request")                                               \
	ROW(max_cqe, "=N: completion queues of at most N")                                                             \
	ROW(cq_round, "completion queues are rounded up to a power of two, as those of mlx5")                          \
	ROW(memlock, "=N: completion queues (64 bytes an entry) and regions take at most N bytes together")            \
	ROW(path_mtu, "=N: clients would send packets of N bytes")                                                     \
	ROW(fail_post_send, "=N: the Nth ibv_post_send fails")                                                         \
	ROW(fail_post_recv, "=N: the Nth ibv_post_recv or ibv_post_srq_recv fails")                                    \
	ROW(fail_reg_mr, "=N: the Nth registration fails")                                                             \
	ROW(fail_create_qp, "=N: the Nth queue pair cannot be made")                                                   \
	ROW(fail_init_qp_attr, "=N: the Nth time attributes are asked for the peer has ended the connection")          \
	ROW(fail_create_cq, "=N: completion queues from the Nth on cannot be made")                                    \
	ROW(events, "commands can be given by verbs_shim_do()")                                                        \
	ROW(file, "=PATH: commands are taken from PATH, one a line, and the file is removed")                          \
	ROW(count, "what was dropped is told at the end, on the standard error")

#define SHAPE_ENUM(name, help) SHAPE_##name,
enum shim_shape { SHAPES(SHAPE_ENUM) SHAPE_COUNT };

bool shim_on(enum shim_shape shape);
long shim_value(enum shim_shape shape); /* 0 where it is off */
const char *shim_text(enum shim_shape shape);

/* The function of this name behind the shim. */
void *shim_next(const char *name);
#define SHIM_NEXT(name) ((__typeof__(&name))shim_next(#name))

/* What the shim knows of a completion queue. */
struct shim_cq {
	struct ibv_cq *cq; /* NULL: free */
	struct ibv_wc *stash;
	unsigned stashed, room;
	uint64_t pinned;
	bool silent, negative, deaf; /* brings nothing, fails to be polled, fails to be armed */
};

#define SHIM_OBJECTS 4096
extern struct shim_cq shim_cqs[SHIM_OBJECTS];
extern struct ibv_srq *shim_srqs[SHIM_OBJECTS];

/* verbs_shim_events.c */
bool shim_gone(void); /* the device was taken away */
bool shim_cut(void);  /* its link is down */
void shim_watch_context(struct ibv_context *context);
/* Around calls that tell the kernel the context's descriptors, and the channel's (NULL: none): these are its own. */
void shim_kernel_begin(struct ibv_context *context, struct ibv_comp_channel *channel);
void shim_kernel_end(struct ibv_context *context, struct ibv_comp_channel *channel);
void shim_async(enum ibv_event_type type, void *element);
void shim_forget(const void *element); /* waits until its events are acknowledged, as the kernel does */
void shim_commands_help(void);
SHIM_EXPORT int verbs_shim_do(const char *command); /* 0, or -1: there is none of this name */

#endif
