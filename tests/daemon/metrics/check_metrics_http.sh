#!/bin/bash
# Metrics and health by HTTP: what is told at each stage of the daemon's life, which clients are held off, and that Prometheus
# itself reads it.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../../lib.sh"
need promtool prometheus python3 jq

# http TEXT...: send it as it is to $at and print all that comes.
http() {
	python3 - "$at" "$@" <<-'END'
		import socket, sys
		host, port = sys.argv[1].rsplit(":", 1)
		with socket.create_connection((host, int(port)), timeout=60) as s:
		    s.sendall("\r\n".join(sys.argv[2:]).encode())
		    try:
		        while part := s.recv(65536):
		            sys.stdout.buffer.write(part)
		    except ConnectionResetError:
		        pass
	END
}
# get PATH [HEADER...]: the head of the answer goes to $dir/head, the body to $dir/out.
get() {
	http "GET $1 HTTP/1.1" "Host: x" "${@:2}" "" "" >"$dir/answer"
	sed '/^\r$/,$d' "$dir/answer" | tr -d '\r' >"$dir/head"
	sed '1,/^\r$/d' "$dir/answer" >"$dir/out"
}
# answers STATUS TEXT PATH
answers() {
	get "$3"
	grep -q "^HTTP/1.1 $1 " "$dir/head" || fail "$3 answers $(head -1 "$dir/head"), not $1"
	grep -qF -- "$2" "$dir/out" || fail "$3 does not say \"$2\""
}
address() { sed -n 's/.*metrics: listening on \(127[^ ]*\)$/\1/p' "$dir/log" | grep . ; }

test_settings() {
	configure 'metrics = { listen = ["tcp://127.0.0.1"]; };'
	ends 78 'is not host or host:port' "$rdmad" -t -c "$dir/rdmad.conf"
	configure
	start_daemon
	control status | jq -e '.metrics == []' >/dev/null || fail "metrics by HTTP without a setting"
	stop_daemon
}

test_life() {
	configure 'metrics = { listen = ["127.0.0.1:0"]; };'
	start_daemon
	server=${servers[0]}
	at=$(control status | jq -r '.metrics[0]')
	answers 200 ready /readyz
	answers 200 alive /healthz
	answers 404 '/metrics, /healthz and /readyz' /
	answers 200 'rdmad_state{state="ready"} 1' /metrics
	grep -qx 'Content-Type: text/plain; version=0.0.4; charset=utf-8' "$dir/head" || fail "type: $(grep -i type "$dir/head")"
	[[ $(promtool check metrics <"$dir/out" 2>&1) == '' ]] || fail "promtool is not content"
	# The same as by the control socket.
	sed -n 's/^# TYPE //p' "$dir/out" >"$dir/families"
	expect 0 metrics
	sed -n 's/^# TYPE //p' "$dir/out" | cmp -s - "$dir/families" || fail "rdmactl metrics has other families"
	get /metrics 'Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5'
	grep -qx 'Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8' "$dir/head" || fail "type of OpenMetrics"
	[[ $(tail -1 "$dir/out") == '# EOF' ]] || fail "OpenMetrics without its end"
	says '^# TYPE rdmad_kv_stored counter$'
	says '^# UNIT rdmad_received_bytes bytes$'
	says '^rdmad_kv_stored_total 0$'
	# Another daemon cannot have the same address, and says so.
	sed "s|127.0.0.1:0\"\\]; };|$at\"]; };|; s|rdmad.sock|second.sock|; s|control.sock|second-control.sock|" "$dir/rdmad.conf" >"$dir/second.conf"
	ends 71 "cannot listen on $at for metrics: Address already in use" "$rdmad" -c "$dir/second.conf"
}

test_prometheus() {
	local port
	expect 0 kv set a 1
	cat >"$dir/prometheus.yml" <<-CONF
		global: { scrape_interval: 1s }
		scrape_configs: [{ job_name: rdmad, static_configs: [{ targets: ["$at"] }] }]
	CONF
	prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/tsdb" --web.listen-address=127.0.0.1:0 >"$dir/prometheus" 2>&1 &
	clients+=($!)
	# What Prometheus has of $1 is $2.
	query() { promtool query instant "http://127.0.0.1:$port" "$1" 2>&1 | grep -Eq "=> $2 @"; }
	is_listening() { port=$(sed -n 's/.*msg="Listening on" address=127.0.0.1:\([0-9]*\)$/\1/p' "$dir/prometheus"); [[ $port ]]; }
	wait_for "Prometheus" is_listening
	wait_for "a scrape" query "up{job=\"rdmad\"}" 1
	wait_for "the item" query rdmad_kv_items 1
	wait_for "the request" query 'rdmad_requests_total{operation="set",service="kv"}' 1
	wait_for "samples without errors" query 'sum(scrape_samples_scraped) > bool 100' 1
	kill "${clients[-1]}"
}

# Clients that ask for nothing, for too much, or in another way; and an honest one beside them.
test_bounds() {
	local before after
	before=$(resource descriptors)
	http "POST /metrics HTTP/1.1" "Host: x" "Content-Length: 1" "" "x" | grep -qE '^HTTP/1.1 (405|501) ' || fail "POST"
	http "GET /metrics HTTP/1.1" "X: $(head -c 20000 /dev/zero | tr '\0' x)" "" "" >"$dir/answer"
	grep -q '^rdmad' "$dir/answer" && fail "a head of 20000 bytes was taken"
	http $'\x01\x02' "" "" | grep -q '^rdmad' && fail "no HTTP was answered with metrics"
	python3 - "$at" <<-'END' || fail "silent clients keep others out"
		import socket, sys, urllib.request
		host, port = sys.argv[1].rsplit(":", 1)
		silent = [socket.create_connection((host, int(port))) for _ in range(40)]
		for s in silent[:20]:
		    s.sendall(b"GET /metrics HT")
		text = urllib.request.urlopen(f"http://{sys.argv[1]}/metrics", timeout=60).read()
		assert b"rdmad_state" in text
		# All are cut off.
		for s in silent:
		    s.settimeout(60)
		    try:
		        while s.recv(1000):
		            pass
		    except ConnectionResetError:
		        pass
	END
	has_returned() { (($(resource descriptors) <= before)); }
	wait_for "their descriptors" has_returned
	answers 200 ready /readyz
}

test_draining() {
	timeout 120 "$rdmactl" -H "unix://$dir/rdmad.sock" bench ping -D 60s >"$dir/bench" 2>&1 &
	clients+=($!)
	has_one() { [[ $(resource connections) != 0 ]]; }
	wait_for "a connection" has_one
	expect 0 drain --yes
	answers 503 'draining' /readyz
	answers 200 alive /healthz
	answers 200 'rdmad_state{state="draining"} 1' /metrics
	kill "${clients[-1]}"
	stop_daemon
}

# While the log is read, which takes long here.
test_loading() {
	command -v strace >/dev/null && strace -qq -o "$dir/strace" true 2>/dev/null || { echo "no strace: the start is not tested"; return; }
	mkdir -p "$dir/kept"
	configure "log = { directory = \"$dir/kept\"; policy = \"always\"; };" 'metrics = { listen = ["127.0.0.1:0"]; };' 'services = ["kv"];'
	start_daemon
	stop_daemon
	ASAN_OPTIONS=detect_leaks=0 strace -f -qq -o "$dir/strace" -P "$dir/kept" -P "$dir/kept/MANIFEST" -e trace=openat \
		-e inject=openat:delay_enter=2000000 "$rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
	daemon=$!
	wait_for "the address" address >/dev/null
	at=$(address)
	answers 503 'loading' /readyz
	answers 200 loading /healthz
	answers 200 'rdmad_state{state="loading"} 1' /metrics
	[[ $(promtool check metrics <"$dir/out" 2>&1) == '' ]] || fail "promtool is not content with the start"
	grep -q '^rdmad_kv_items' "$dir/out" && fail "items are told before there are any"
	is_ready() { get /readyz && grep -q '^HTTP/1.1 200 ' "$dir/head"; }
	wait_for "the end of the start" is_ready
	kill -TERM "$(pgrep -P "$daemon")"
	wait_for "the end" ended "$daemon"
	wait "$daemon" || fail "exit status $?"
	daemon=''
}

test_settings
test_life
test_prometheus
test_bounds
test_draining
test_loading
conclude
