#!/bin/bash
# The tests that redis 7.0.15 has for itself, in Tcl, against rdmad: those of redis_skip.txt are left out, each with a reason.
# UNITS="unit/expire unit/scan" asks for some of them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need tclsh redis-cli
sources=$("$srcdir/scripts/packages" --source redis 2>"$dir/out") ||
	{ echo "$test_name: the sources of redis cannot be fetched: $(tail -n 1 "$dir/out")"; exit 77; }
tar -xf "$sources"/redis_*.orig.tar.gz -C "$dir" || give_up "the sources of redis: tar"

units=(type/string type/incr type/hash expire keyspace scan protocol multi quit auth info-command introspection introspection-2 other tracking pubsub pubsubshard)
configure 'services = ["kv", "resp"];' 'kv.memory = "256M";' 'resp = { listen = ["127.0.0.1:0"]; scripts = true; script_time = "10s"; };'
"$rdmad" -c "$dir/rdmad.conf" -T >"$dir/out" 2>&1 || sed -i 's/ scripts = true;//' "$dir/rdmad.conf" # this build has none
start_daemon
port=$(sed -n 's/.*listening on tcp [0-9.]*:\([0-9]*\) for resp.*/\1/p' "$dir/log")
answer() { timeout 60 redis-cli -p "$port" "$@" 2>&1; }
[[ $(answer eval 'return 1' 0) != 1 ]] || units+=(scripting)
cp "$srcdir/tests/service/clients/redis_skip.txt" "$dir/skip"
[[ $(answer eval 'return type(cjson)' 0) == table ]] || echo '/^(EVAL - JSON|Try trick readonly table on json)' >>"$dir/skip" # no lua-cjson
[[ $(part 20) -gt 1 ]] || units=(type/string keyspace protocol multi)
[[ ! ${UNITS-} ]] || read -ra units <<<"$UNITS"

# Of scripts its suite asks twice: by EVAL, and by functions, which rdmad does not have.
cd "$dir"/redis-7.* && sed -i 's/foreach is_eval {0 1}/foreach is_eval {1}/' tests/unit/scripting.tcl
# Nothing of a hash or of the table of read keys is set here.
sed -i '/^ *r config set hash-max-/d' tests/unit/type/hash.tcl
sed -i '/config set tracking-table-max-keys/Id' tests/unit/tracking.tcl
singles=()
for unit in "${units[@]}"; do singles+=(--single "unit/${unit#unit/}"); done
timeout 500 ./runtest --host 127.0.0.1 --port "$port" --singledb --ignore-encoding --ignore-digest --durable --clients 1 \
	--tags "-needs:debug -needs:repl -needs:save -needs:config-maxmemory" --skipfile "$dir/skip" \
	"${singles[@]}" >"$dir/suite" 2>&1
status=$?
sed -i 's/\x1b\[[0-9;]*m//g' "$dir/suite"
passed=$(grep -c '^\[ok\]' "$dir/suite")
echo "$passed tests passed, $(grep -c '^\[skip\]' "$dir/suite") are left out by the list, $(grep -c '^\[ignore\]' "$dir/suite") by redis"
if [[ $status != 0 ]]; then
	grep -aE -A 4 '^\[(err|exception|timeout)' "$dir/suite" | cut -c1-400 | head -n 200 >&2
	fail "exit status $status of redis's suite"
fi
((passed > 20)) || fail "$passed tests of redis's suite passed"
cd "$builddir" || exit
stop_daemon
conclude
