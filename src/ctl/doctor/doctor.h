/*
 * ctl/doctor: rdmactl doctor, which looks for what is in the way of rdmad on this machine and towards a host, and
 * rdmactl explain, which says what the number of an error means.
 *
 * A check is a row of a table in doctor.c. It reads files below the root, asks programs, or tries what the daemon will
 * do, and adds findings. A finding is a row of errors.c, which has the words, with the figures of this machine.
 */
#ifndef RDMAD_CTL_DOCTOR_H
#define RDMAD_CTL_DOCTOR_H

#include <net/if.h>
#include <netinet/in.h>

#include "ctl/ctl.h"

/*
 * errors.c: what each number means. The manual rdmad-errors(7) is printed from this table.
 */
enum severity {
	SEVERITY_NOTE,    /* told, and counted for nothing */
	SEVERITY_WARNING, /* rdmad serves, but slower or with less than it could */
	/* A failure where the configuration requires RDMA, a note where it leaves it out, else a warning. */
	SEVERITY_RDMA,
	SEVERITY_FAILURE, /* rdmad does not start, or does not do what it is configured for */
};

struct error_row {
	unsigned number; /* of a check: its number * 100 and one more for each fault; else from 5000 on */
	enum severity severity;
	const char *what;  /* is wrong, in a few words */
	const char *cause; /* the likely one */
	const char *mend;  /* a command; its words in capitals are replaced by those of a finding */
};

/* NULL: there is none. */
const struct error_row *error_find(unsigned number);
const char *severity_name(enum severity severity);

/*
 * look.c: files below the root and the output of programs. All that a check reads comes by these, and goes into the
 * bundle where there is one: an unpacked bundle is a root, with which the same findings come out.
 */
#define LOOK_MAX (256 * KIB) /* of a file or an output; the rest is left out */

struct look {
	const char *root;    /* in front of each path; "": this machine */
	struct bundle *into; /* NULL: no bundle */
};

/* The text of a file, without blanks and line feeds at its end, or with `len` all of its bytes, and how many. free()
 * them. NULL: errno says why. */
char *look_bytes(struct look *look, size_t *len, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define look_text(look, ...) look_bytes(look, NULL, __VA_ARGS__)
/* The same, into a buffer: its first line. False, and an empty one: it cannot be read. */
bool look_line(struct look *look, char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* A decimal number at the begin of a file. False: there is none. */
bool look_number(struct look *look, uint64_t *out, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Whether it is there, whatever it is. */
bool look_there(struct look *look, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The names in a directory in order, without "." and "..", each ended by 0, the last by another. free() them. NULL: it
 * cannot be read. */
char *look_names(struct look *look, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define look_each(name, names) for (const char *name = (names); name && *name; name += strlen(name) + 1)
/* What a program prints on stdout and stderr, which ends within 60 s; *status is its exit status, or 127 where it is
 * not there. Below a root it is the file programs/ARGUMENTS, with "_" for "/" and for blanks; status 0. free() it. */
char *look_program(struct look *look, const char *const *arguments, int *status);

/*
 * bundle.c: a tar of what was looked at.
 */
int bundle_open(const char *path, struct bundle **out);
/* data NULL: a directory. */
void bundle_add(struct bundle *bundle, const char *name, const void *data, size_t len);
/* 0, or -errno of what failed first. */
int bundle_close(struct bundle *bundle);

/*
 * doctor.c: one run.
 */
#define PORTS_MAX 32
#define ADDRESSES_MAX 64

/* A port of an RDMA device. */
struct port {
	char device[64];
	unsigned number;
	bool ethernet;         /* RoCE or iWARP; else InfiniBand */
	char netdev[IFNAMSIZ]; /* "": unknown */
};

/* An address of this machine. */
struct local_address {
	char netdev[IFNAMSIZ]; /* "": unknown */
	struct sockaddr_storage sa;
	char text[INET6_ADDRSTRLEN];
	uint32_t network, mask; /* of IPv4, as in /proc/net/route; mask 0: unknown */
};

struct finding {
	const struct error_row *row;
	const char *check;
	char *figures, *mend;
};

struct doctor {
	struct look look;
	bool live;        /* this machine, not a root: things can be tried */
	const char *file; /* the configuration */
	char unit[80];    /* of systemd, that has it: rdmad, or an instance, rdmad@NAME */
	bool user_asked, user_known;
	uid_t user;   /* that the daemon runs as */
	char *config; /* as rdmad -T prints it; NULL: unknown, and config_wrong says why */
	char config_wrong[512];
	int config_status; /* rdmad's exit status; 127: there is no rdmad */
	char program[512]; /* rdmad */
	bool require_rdma, wants_rdma;
	uint64_t store; /* bytes of kv.memory in effect; 0: unknown */
	json_t *status; /* the running daemon's; NULL: none, or not for this user */
	int64_t pid;    /* of it; 0 */
	struct port port[PORTS_MAX];
	unsigned ports;
	struct local_address address[ADDRESSES_MAX];
	unsigned addresses;
	json_t *counters;  /* of the devices, at the begin */
	const char *check; /* the id of the one that looks */
	struct finding *finding;
	size_t findings, room;
	bool lost;     /* a finding, for lack of memory */
	json_t *paths; /* towards the host, see far.c */
	json_t *there; /* what the host tells of itself, see there.c; NULL: nothing */
};

/* Add a finding. Words in capitals in the row's command are replaced: names is NAMES("IF", "eth0", ...) or NULL. */
void finding_add(struct doctor *d, unsigned number, const char *const *names, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

/*
 * facts.c: what several checks need to know.
 */
#define STATUS_NAME "/status.json" /* of the daemon's status, in a bundle */
void facts_gather(struct doctor *d);
void facts_release(struct doctor *d);
/* The names of transports in rdmad.conf, and of the schemes of addresses. */
extern const char scheme_rdma[], scheme_tcp[];
/* The name of its file. */
const char *config_file(const struct doctor *d);
/* The user that the daemon runs as, or by its unit will. False: unknown. */
bool daemon_user(struct doctor *d, uid_t *user);
/* Whether it is not one that another user starts. */
bool daemon_is_ours(struct doctor *d);
/* The value of a setting as text without quotes, of a list its items with ", " between. False: unset, or unknown. */
bool config_value(const struct doctor *d, const char *path, char *buf, size_t size);
/* A size or a number. `effective`: the one in effect. False: unknown. */
bool config_size(const struct doctor *d, const char *path, uint64_t *out, bool effective);
/* Whether the address is of a netdev that an RDMA port has. */
bool address_is_rdma(const struct doctor *d, const struct local_address *address);
/* Fields of /proc/PID/status and such: the number behind `name`. */
bool field_number(const char *text, const char *name, uint64_t *out, int base);

/* Whether the port of that index is its device's first: what is of the device is looked at there. */
bool port_is_first(const struct doctor *d, unsigned index);

/* Bytes of its packets; below a root, by the MTU of its network interface. 0: unknown. */
unsigned port_mtu(struct doctor *d, const struct port *port);

/* What the ports have counted of errors: numbers above 0 by the path of their file. */
json_t *counters_read(struct doctor *d);

/*
 * verbs.c: the door of libibverbs and librdmacm, on this machine.
 */
/* Names of the devices that the libraries can use, as look_names(). */
char *verbs_names(void);
/* Bytes of a packet on an active port. 0: unknown. */
unsigned verbs_mtu(const char *device, unsigned port);
/* Register that much memory and give it back: 0, or -errno; *step is what failed. */
int verbs_register(const char *device, size_t bytes, const char **step);

/* How far rdma_cm comes towards an address. */
enum cm_stage { CM_NOTHING, CM_BIND, CM_ADDRESS, CM_ROUTE };
const char *cm_stage_name(enum cm_stage stage);
/* What it found. */
struct cm_way {
	char device[64]; /* "": none */
	unsigned port, mtu;
	char from_gid[INET6_ADDRSTRLEN], to_gid[INET6_ADDRSTRLEN]; /* of both ends, from CM_ADDRESS on */
};

/* Bind to `from` (NULL: to none) and find address and route of `to`. *error is 0, or the -errno by which the stage
 * behind the one that is answered failed. */
enum cm_stage verbs_resolve(const struct sockaddr *from, const struct sockaddr *to, int timeout_ms, int *error,
			    struct cm_way *way);

/*
 * far.c: towards a host.
 */
void far_look(struct doctor *d, const char *host);
void far_print(const struct doctor *d);

/*
 * there.c: what the host tells of itself, beside what this machine is.
 */
struct rdmad_ping;
/* Asks by a connection that works, once. */
void there_ask(struct doctor *d, struct rdmad_ping *ping, const char *host);
/* The same by what a bundle has of it. */
void there_read(struct doctor *d);
/* Adds what does not fit together. `way`: what rdma_cm found on the way there. */
void there_judge(struct doctor *d, const char *host, const struct cm_way *way);
void there_print(const struct doctor *d);

/*
 * The checks, by their file.
 */
/* clang-format off */
#define CHECKS(ROW) \
	ROW(modules) ROW(nodes) ROW(provider) ROW(state) ROW(rate) ROW(listen) ROW(gids) ROW(self) ROW(neighbours) \
	ROW(namespace) ROW(mtu) ROW(memlock) ROW(register) ROW(maps) ROW(pages) ROW(numa) ROW(groups) ROW(governor) \
	ROW(flow) ROW(counters) ROW(iommu) ROW(gpus) ROW(direct) ROW(firewall) ROW(port) ROW(config) ROW(clock) \
	ROW(log) ROW(keys) ROW(sandbox) ROW(kernel) ROW(cluster)
/* clang-format on */
#define CHECK_DECLARE(name) void check_##name(struct doctor *d);
CHECKS(CHECK_DECLARE)
#undef CHECK_DECLARE

#endif
