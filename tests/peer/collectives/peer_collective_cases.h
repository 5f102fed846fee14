/* peer_collective_cases.h: collectives of all members of a group in one thread, and what they must give. Over any network. */
#ifndef RDMAD_TESTS_PEER_COLLECTIVE_CASES_H
#define RDMAD_TESTS_PEER_COLLECTIVE_CASES_H

#include "peer/collectives/collective.h"

#define CASE_MEMBERS 16

/* One collective. */
struct trial {
	enum collective_kind kind;
	size_t bytes; /* of a part; of all that is reduced, rounded down to elements */
	int root;
	rdma_type type;
	rdma_op op;
	bool in_place;
	const char *algorithm; /* NULL: by size */
	unsigned salt;         /* makes the contents different */
};

struct trial_member {
	rdma_request *request;
	char *send, *recv;
	size_t recv_size;
	size_t length[CASE_MEMBERS], send_at[CASE_MEMBERS], recv_at[CASE_MEMBERS];
	int64_t result;
	int error;
	char why[512];
	bool done;
};

struct trial_run {
	const struct trial *trial;
	rdma_group **group;
	int size;
	struct trial_member member[CASE_MEMBERS];
};

/* `rank` begins its part; NULL from the library is an outcome, too. Its memory is as large as it must be, to the byte. */
void trial_begin(struct trial_run *run, int rank);
/* Turns a member's context. Whether its part is done. */
bool trial_test(struct trial_run *run, int rank);
/* That a member has what it must have; and that what it sent is as it was. */
void trial_check(const struct trial_run *run, int rank);
/* The member's memory is gone. */
void trial_free(struct trial_run *run, int rank);

/* All of it. `turn`: something happens elsewhere; may be NULL. */
void trial_run(rdma_group **group, int size, const struct trial *trial, bool (*turn)(void));
/* For a failure's message. */
const char *trial_text(const struct trial *trial, int size);

#endif
