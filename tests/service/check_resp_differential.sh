#!/bin/bash
# The replies of rdmad to Redis's clients are those of a redis-server, or there is a reason. COMMANDS=100000 SEED=7 asks for more.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need python3 redis-server

TMPDIR=$dir python3 "$srcdir/tests/service/resp_differential.py" --rdmad "$rdmad" --commands "${COMMANDS:-$(part 20000)}" --seed "${SEED:-1}" ||
	give_up "the replies differ"
conclude
