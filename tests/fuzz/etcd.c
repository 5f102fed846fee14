/* etcd.c: answers of etcd. One that is taken has what a member can be told, and tells it. */
#include "etcd/etcd.h"
#include "fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct cluster_member_attr attr = {.cluster = "kv",
							.node = "a",
							.boot = "b",
							.place = "-",
							.period = TIME_S,
							.spread_after = TIME_S,
							.serves = CLUSTER_SERVES,
							.silence = CLUSTER_SILENCE};
	struct cluster_member *member;
	struct etcd_answer answer;
	struct cluster_txn txn;
	char *body;

	fuzz_silence();
	if (etcd_decode("kv", (const char *)data, size, &answer) != 0)
		return 0;
	REQUIRE(answer.view.revision && answer.view.members <= ETCD_MEMBERS);
	for (unsigned i = 0; i < answer.view.members; i++) {
		REQUIRE(cluster_view_find(&answer.view, answer.view.member[i].node) == &answer.view.member[i]);
		REQUIRE(answer.view.member[i].revision);
	}
	REQUIRE(cluster_member_new(&attr, &member) == 0);
	for (uint64_t now = TIME_S; now < 6 * TIME_S; now += TIME_S / 8) {
		if (!cluster_member_next(member, now, &txn))
			continue;
		body = etcd_encode("kv", &txn);
		REQUIRE(body);
		free(body);
		cluster_member_answer(member, now, &answer.view);
		/* Nobody has said that it is a member. */
		REQUIRE(cluster_member_until(member) == 0 || cluster_member_state(member) == CLUSTER_BEATING);
		cluster_member_adopted(member, cluster_member_wish(member)->serial);
	}
	cluster_member_free(member);
	etcd_answer_free(&answer);
	return 0;
}
