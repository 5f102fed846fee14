#!/bin/bash
# The replies of rdmad to Redis's clients are those of a redis-server, or there is a reason; also where they wait for the log, and over
# RDMA, as Valkey has it.
# COMMANDS=100000 SEED=7 asks for more of them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need python3 redis-server

# compare COMMANDS [OPTION...]
compare() {
	local commands=$1
	shift
	TMPDIR=$dir python3 "$srcdir/tests/service/resp/resp_differential.py" --rdmad "$rdmad" --commands "$commands" --seed "${SEED:-1}" "$@" ||
		give_up "the replies differ"
}

compare "${COMMANDS:-$(part 20000)}"
compare "$(part 2000)" --log
compare "$(part 5000)" --valkey "$builddir/tests/service/resp/valkey_rdma"
conclude
