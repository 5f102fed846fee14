#!/bin/bash
# check_nemesis.sh: three rdmads that agree by three etcds, each in a network of its own, while all of them are killed,
# stopped, cut off and given tables (nemesis.py). No slot ever has two servers, and a value that is found was
# written last. By hand:
#
#     RUNS=200 SECONDS_EACH=12 JOBS=2 SEED=1 tests/etcd/check_nemesis.sh
#
# Prints a table of what there was. A run that fails is named by its seed, and leaves its logs in KEEP, if that is a folder.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need etcd etcdctl ip unshare nsenter jq python3
alone=(unshare -rnm --pid --fork --mount-proc --kill-child)
"${alone[@]}" true 2>/dev/null || { echo "$test_name: no namespaces here"; exit 77; }
"${alone[@]}" sh -c 'ip link add br0 type bridge && ip link add v0 type veth peer name v1' 2>"$dir/err" || {
	echo "$test_name: no such interfaces here: $(cat "$dir/err")"
	exit 77
}
runs=${RUNS:-1} seconds=${SECONDS_EACH:-$(part 20)} jobs=${JOBS:-1} first=${SEED:-1}
history=$builddir/tests/cluster/history
[[ ! -x $builddir/tests/cluster/.libs/history ]] || history=$builddir/tests/cluster/.libs/history

# run SEED: its line is in $dir/SEED.out.
run() {
	mkdir "$dir/$1" || return
	"${alone[@]}" python3 "$srcdir/tests/etcd/nemesis.py" "$1" "$seconds" "$dir/$1" "$rdmad" "$rdmactl" "$history" \
		>"$dir/$1.out" 2>"$dir/$1.err" </dev/null || {
		cat "$dir/$1.err" >&2
		[[ ! -d ${KEEP-} ]] || cp -r "$dir/$1" "$dir/$1.err" "$KEEP"
		echo "$1" >>"$dir/failed"
	}
	rm -rf "${dir:?}/$1"
}

for ((seed = first; seed < first + runs; seed++)); do
	while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
	run "$seed" &
	clients+=("$!")
done
wait
[[ ! -e $dir/failed ]] || fail "seeds $(tr '\n' ' ' <"$dir/failed")"
cat "$dir"/*.out | jq -rs '["runs", length], (["requests", "hits", "misses", "refused", "unanswered", "kills", "stops", "cuts", "tables",
	"answers", "two_owners", "values_torn", "are_undecided", "are_not"][] as $of | [$of, (map(.[$of] // 0) | add)]) | @tsv'
[[ $(cat "$dir"/*.out | wc -l) == "$runs" ]] || fail "not all runs have said what there was"
conclude
