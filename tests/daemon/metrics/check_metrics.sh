#!/bin/bash
# What the daemon tells a monitoring system: the text's form by Prometheus' own tool, the numbers beside those of status, and the
# manual's table, which is the daemon's.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need promtool jq

# value SERIES: of the text in $dir/out; empty: it is not there.
value() { awk -v series="$1" '{ n = $NF; sub(/ [^ ]*$/, "") } $0 == series { print n }' "$dir/out"; }

# has SERIES NUMBER
has() {
	local got
	got=$(value "$1")
	[[ $got == "$2" ]] || fail "$1 is \"$got\", not \"$2\""
}

# The text is as Prometheus wants it, each family once and in one place.
is_well_formed() {
	promtool check metrics <"$dir/out" >"$dir/lint" 2>&1 || fail "promtool: $(head -3 "$dir/lint")"
	[[ ! -s $dir/lint ]] || fail "promtool: $(head -3 "$dir/lint")"
	sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$dir/out" | sort | uniq -d | grep . && fail "a family comes twice"
}

test_table() {
	"$rdmad" --help-metrics >"$dir/table" || fail "--help-metrics"
	"$srcdir/scripts/metrics" <"$dir/table" >"$dir/out" 2>&1 || fail "the manual has another table"
	[[ $(cut -f1 "$dir/table" | sort | uniq -d) == '' ]] || fail "a metric has two rows"
	# One that the page lacks is found, and written.
	mkdir -p "$dir/top/man" "$dir/top/etc"
	grep -v '^\.It Va rdmad_kv_items$' "$srcdir/man/rdmad-metrics.7" >"$dir/top/man/rdmad-metrics.7"
	"$srcdir/scripts/metrics" "$dir/top" <"$dir/table" >"$dir/out" 2>&1 && fail "a page without rdmad_kv_items passes"
	"$srcdir/scripts/metrics" "$dir/top" --write <"$dir/table" >"$dir/out" 2>&1 || fail "--write"
	cmp -s "$srcdir/man/rdmad-metrics.7" "$dir/top/man/rdmad-metrics.7" || fail "--write makes another page"
	cmp -s "$srcdir/etc/rdmad-dashboard.json" "$dir/top/etc/rdmad-dashboard.json" || fail "--write makes another dashboard"
	# Its panels have places of their own, and Prometheus understands what they ask for.
	jq -e '.panels | length == 12 and ([.[].id] | unique | length == 12) and ([.[].gridPos] | unique | length == 12) and
		all(.[]; (.title | length > 0) and (.description | length > 0) and (.targets | length > 0))' \
		"$srcdir/etc/rdmad-dashboard.json" >/dev/null || fail "the dashboard's panels"
	{
		echo 'groups: [{ name: panels, rules: ['
		jq -r '.panels[].targets[].expr | gsub("\\$__rate_interval"; "5m") | {record: "a:b", expr: .} | tojson + ","' "$srcdir/etc/rdmad-dashboard.json"
		echo ']}]'
	} >"$dir/panels.yml"
	ends 0 "SUCCESS: $(jq '[.panels[].targets[]] | length' "$srcdir/etc/rdmad-dashboard.json") rules found" promtool check rules --lint=none "$dir/panels.yml"
}

# Each large value that went this way has a duration, once it is there.
all_moved() {
	local counted
	expect 0 metrics
	counted=$(($(value "rdmad_transfers_total{direction=\"$1\",way=\"rdma\"}") + $(value "rdmad_transfers_total{direction=\"$1\",way=\"pushed\"}")))
	((counted > 0)) && [[ $(value "rdmad_transfer_duration_seconds_count{service=\"kv\",direction=\"$1\"}") == "$counted" ]]
}

test_numbers() {
	mkdir -p "$dir/kept"
	configure "log = { directory = \"$dir/kept\"; policy = \"always\"; };" 'resp.listen = ["127.0.0.1:0"];' \
		'memcached.listen = ["127.0.0.1:0"];' "gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; };"
	start_daemon
	server=${servers[0]}
	expect 0 metrics
	is_well_formed
	has 'rdmad_state{state="ready"}' 1
	has 'rdmad_state{state="loading"}' 0
	has 'rdmad_requests_total{service="kv",operation="set"}' 0
	has 'rdmad_connections_refused_total{reason="draining"}' 0
	has 'rdmad_log_state{state="good"}' 1
	expect 0 kv set a 1
	expect 0 kv get a
	expect 0 kv get a
	expect 4 kv get b
	expect 0 metrics
	is_well_formed
	has 'rdmad_requests_total{service="kv",operation="set"}' 1
	has 'rdmad_requests_total{service="kv",operation="get"}' 3
	has 'rdmad_kv_lookups_total{result="hit"}' 2
	has 'rdmad_kv_lookups_total{result="miss"}' 1
	has 'rdmad_kv_items' 1
	has 'rdmad_log_changes_total' 1
	has "rdmad_transport_available{transport=\"${server%%:*}\"}" 1
	has 'rdmad_kv_memory_limit_bytes' $((64 << 20))
	# Each answer is in a histogram once; an answer that waited for the log, with the time of that.
	has 'rdmad_request_duration_seconds_count{service="kv",class="write"}' 1
	has 'rdmad_request_duration_seconds_count{service="kv",class="read"}' 3
	has 'rdmad_request_duration_seconds_bucket{service="kv",class="read",le="+Inf"}' 3
	has 'rdmad_request_duration_seconds_count{service="kv",class="scan"}' 0
	expect 0 bench kv -n 3000 -s 64,100K -o set -c 2
	expect 0 bench kv -n 3000 -s 64 -o get -c 2 -d 8
	expect 0 metrics
	is_well_formed
	for class in read write scan; do
		case $class in read) names='get exists stat info' ;; write) names='set delete expire incr edit' ;; scan) names='scan flush' ;; esac
		counted=0
		for name in $names; do counted=$((counted + $(value "rdmad_requests_total{service=\"kv\",operation=\"$name\"}"))); done
		has "rdmad_request_duration_seconds_count{service=\"kv\",class=\"$class\"}" "$counted"
	done
	# Large values, both ways, beside their counters.
	expect 0 bench kv -n 100 -s 100K -o get -c 2 -k 50
	expect 0 metrics
	for way in in out; do wait_for "the durations of large values $way" all_moved $way; done
	expect 0 metrics
	awk '/^rdmad_worker_turn_duration_seconds_count/ { turns = $2 } /^rdmad_worker_busy_seconds_total/ { busy += $2 }
		END { exit !(turns > 0 && busy > 0) }' "$dir/out" || fail "the workers did nothing"
	# Each metric of a daemon with a log, without devices and of no cluster is there.
	sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' "$dir/out" | sort >"$dir/told"
	cut -f1 "$dir/table" | grep -Ev '^rdmad_(rdma_port|gpu_sessions|gpu_sessions_limit$|client_used|cluster_|memlock)' | sort | comm -13 "$dir/told" - >"$dir/lacking"
	[[ ! -s $dir/lacking ]] || fail "without: $(tr '\n' ' ' <"$dir/lacking")"
	control metrics | jq -e '.ok and (.text | startswith("# HELP "))' >/dev/null || fail "--json metrics"
}

# took SERVICE NUMBER...: requests of each class that have a duration; they have when the daemon's turn with their answers has ended.
took() {
	local service=$1 class
	shift
	expect 0 metrics
	for class in read write scan; do
		[[ $(value "rdmad_request_duration_seconds_count{service=\"$service\",class=\"$class\"}") == "$1" ]] || return 1
		shift
	done
}
has_moved() { expect 0 metrics && [[ $(value "rdmad_transfer_duration_seconds_count{service=\"$1\",direction=\"in\"}") == 1 ]]; }

# talk SERVICE LINES LAST: what a client says, until an answer is LAST.
talk() {
	local port fd line
	port=$(sed -n "s/.*listening on tcp 127.0.0.1:\([0-9]*\) for $1\$/\1/p" "$dir/log")
	exec {fd}<>"/dev/tcp/127.0.0.1/$port"
	printf '%b' "$2" >&"$fd"
	while read -t 60 -r -u "$fd" line && line=${line%$'\r'} && [[ $line != "$3" ]]; do :; done
	[[ $line == "$3" ]] || fail "$1: no answer is \"$3\""
	exec {fd}>&-
}

# Requests of other protocols have durations, too: what waits for the log among them, and long values.
test_durations() {
	local long
	long=$(printf '%0100000d' 0)
	wait_for "no commands" took resp 0 0 0
	talk resp 'SET x 1\r\nGET x\r\nGET none\r\nKEYS *\r\nMULTI\r\nSET y 1\r\nGET y\r\nEXEC\r\nECHO end\r\n' end
	wait_for "durations of Redis's commands" took resp 4 2 1 # MULTI and ECHO beside both GETs; EXEC is one of those that write
	talk resp "*3\\r\\n\$3\\r\\nSET\\r\\n\$1\\r\\nx\\r\\n\$100000\\r\\n$long\\r\\nECHO end\\r\\n" end
	wait_for "that of a long value" took resp 5 3 1
	wait_for "its way" has_moved resp
	talk memcached "set x 0 0 1\\r\\n1\\r\\nget x none\\r\\nmg x v\\r\\nincr x 1\\r\\nflush_all\\r\\nset y 0 0 100000\\r\\n$long\\r\\nmn\\r\\n" MN
	wait_for "durations of memcached's commands" took memcached 3 3 1
	wait_for "the way of a long value" has_moved memcached
	expect 0 metrics
	has 'rdmad_request_duration_seconds_count{service="gpu",class="job"}' 0
	expect 0 bench gpu -n 20 -m rpc
	expect 0 metrics
	has 'rdmad_request_duration_seconds_count{service="gpu",class="job"}' "$(value 'rdmad_requests_total{service="gpu",operation="quantize"}')"
	[[ $(value 'rdmad_request_duration_seconds_sum{service="gpu",class="job"}') != 0 ]] || fail "jobs took no time"
}

# Connections are counted while they are there, by what they go by and what they want.
test_connections() {
	expect 0 metrics
	has 'rdmad_connections{transport="shm",service="kv"}' 0
	timeout 120 "$rdmactl" -H "unix://$dir/rdmad.sock" bench kv -c 3 -D 60s >"$dir/bench" 2>&1 &
	clients+=($!)
	has_three() { expect 0 metrics && [[ $(value 'rdmad_connections{transport="shm",service="kv"}') == 3 ]]; }
	wait_for "three connections" has_three
	kill "${clients[-1]}"
	has_none() { expect 0 metrics && [[ $(value 'rdmad_connections{transport="shm",service="kv"}') == 0 ]]; }
	wait_for "their end" has_none
	local port of='rdmad_connections{transport="tcp",service="resp"}' fd
	port=$(sed -n 's/.*listening on tcp 127.0.0.1:\([0-9]*\) for resp$/\1/p' "$dir/log")
	expect 0 metrics
	has "$of" 0
	exec {fd}<>"/dev/tcp/127.0.0.1/$port"
	has_one() { expect 0 metrics && [[ $(value "$of") == 1 ]]; }
	wait_for "a client of Redis's" has_one
	exec {fd}>&-
	has_none() { expect 0 metrics && [[ $(value "$of") == 0 ]]; }
	wait_for "its end" has_none
	is_well_formed
}

test_reload() {
	expect 0 metrics
	has 'rdmad_config_last_reload_successful' 1
	echo 'nonsense = 1;' >>"$dir/rdmad.conf"
	ctl reload && fail "nonsense was loaded"
	expect 0 metrics
	has 'rdmad_config_last_reload_successful' 0
	sed -i '/nonsense/d' "$dir/rdmad.conf"
	expect 0 reload
	expect 0 metrics
	has 'rdmad_config_last_reload_successful' 1
	expect 0 drain --yes
	expect 0 metrics
	has 'rdmad_state{state="draining"}' 1
	has 'rdmad_state{state="ready"}' 0
	stop_daemon
}

test_table
test_numbers
test_durations
test_connections
test_reload
conclude
