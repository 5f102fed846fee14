#!/bin/bash
# The gpu service as people use it, with rdmad, its worker process and rdmactl from the build tree: images in both formats, and
# thousands compared with what another processor makes of them, in both modes. By TCP and UNIX sockets, or by RDMA where there
# is a device whose address RDMAD_GUEST_ADDR says. The example of rdmad_gpu(3) is compiled and run, too.
set -u
builddir=${builddir:-$PWD}
srcdir=$(cd "${srcdir:-$(dirname "$0")/..}" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/rdmad-gpu.XXXXXX")
images=${IMAGES:-2000}
daemon='' failures=0 server=''
unset RDMAD_HOST

finish() {
	[[ $daemon ]] && kill -KILL "$daemon" 2>/dev/null
	wait
	rm -rf "$dir"
}
trap finish EXIT

for tool in jq python3 cmp; do
	command -v $tool >/dev/null || { echo "check_gpu_end_to_end: $tool is missing"; exit 77; }
done

fail() {
	echo "FAILED: ${server:+$server: }$*" >&2
	sed 's/^/  stdout: /' "$dir/out" 2>/dev/null | cut -c1-300 | head -5 | cat -v >&2
	sed 's/^/  stderr: /' "$dir/err" 2>/dev/null | cut -c1-300 | head -5 | cat -v >&2
	failures=$((failures + 1))
}

# expect STATUS ARGUMENTS: of rdmactl at this server; stdout and stderr go to files.
expect() {
	local want=$1 got
	shift
	timeout 240 "$builddir/rdmactl" --control "$dir/control.sock" ${server:+-H "$server"} "$@" >"$dir/out" 2>"$dir/err"
	got=$?
	[[ $got == "$want" ]] || { fail "rdmactl $*: exit status $got, not $want"; return 1; }
}

says() { grep -Eq -- "$1" "$dir/out" || fail "${2-}: stdout lacks \"$1\""; }
complains() { grep -Eq -- "$1" "$dir/err" || fail "${2-}: stderr lacks \"$1\""; }
json() { jq -e "$1" "$dir/out" >/dev/null 2>&1 || fail "${2-}: not true of the JSON: $1"; }

start_daemon() {
	local rdma=${RDMAD_GUEST_ADDR:+", \"rdma://$RDMAD_GUEST_ADDR:"} port
	for _ in {1..5}; do
		port=$((20000 + RANDOM % 30000))
		cat >"$dir/rdmad.conf" <<-CONF
			listen = ["tcp://127.0.0.1:$port"${rdma:+"$rdma$port\""}];
			unix_socket = "$dir/rdmad.sock";
			pid_file = "$dir/rdmad.pid";
			services = ["ping", "gpu"];
			gpu = { backend = "cpu"; program = "$builddir/rdmad-gpu"; memory = "32M"; };
			control = { socket = "$dir/control.sock"; };
		CONF
		"$builddir/rdmad" -c "$dir/rdmad.conf" >"$dir/log" 2>&1 &
		daemon=$!
		servers=("tcp://127.0.0.1:$port" "unix://$dir/rdmad.sock")
		[[ ! $rdma ]] || servers=("rdma://$RDMAD_GUEST_ADDR:$port")
		for _ in {1..200}; do
			"$builddir/rdmactl" --control "$dir/control.sock" status >/dev/null 2>&1 && return
			kill -0 $daemon 2>/dev/null || break
			sleep 0.1
		done
		wait $daemon
	done
	cat "$dir/log" >&2
	echo "check_gpu_end_to_end: rdmad does not start" >&2
	exit 1
}

# Images, and what has to come of them by the definition, made by somebody else: NAME.pgm, NAME.png, NAME.want with 4 levels.
make_images() {
	python3 - "$dir" <<-'PYTHON'
		import random, struct, sys, zlib
		folder = sys.argv[1]
		def write(name, data):
		    with open(f"{folder}/{name}", "wb") as file:
		        file.write(data)
		def pgm(width, height, pixels):
		    return b"P5\n%d %d\n255\n" % (width, height) + pixels
		def chunk(kind, data):
		    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
		def png(width, height, depth, color, row, rows):
		    raw = b"".join(b"\0" + rows[i:i + row] for i in range(0, len(rows), row))
		    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)) +
		            chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))
		def quantize(pixels, levels):
		    below, table = 0, []
		    for value in range(256):
		        below += pixels.count(value)
		        table.append(256 // levels * (levels * below // len(pixels)) & 255)
		    return pixels.translate(bytes(table))
		dice = random.Random(1)
		shades = bytes(min(255, int(abs(dice.gauss(100, 60)))) for _ in range(256))
		for name, width, height in (("small", 1, 1), ("usual", 64, 64), ("odd", 61, 67), ("large", 1500, 1100)):
		    pixels = dice.randbytes(width * height).translate(shades)
		    write(f"{name}.pgm", pgm(width, height, pixels))
		    write(f"{name}.png", png(width, height, 8, 0, width, pixels))
		    for levels in (1, 4, 256):
		        write(f"{name}.want{levels}", pgm(width, height, quantize(pixels, levels)))
		colours = dice.randbytes(3 * 20 * 10)
		grey = bytes((2126 * r + 7152 * g + 722 * b + 5000) // 10000 for r, g, b in zip(colours[::3], colours[1::3], colours[2::3]))
		write("colour.png", png(20, 10, 8, 2, 60, colours))
		write("colour.want", pgm(20, 10, quantize(grey, 4)))
		write("cut.png", png(20, 10, 8, 2, 60, colours)[:90])
		write("cut.pgm", b"P5 64 64 255\nabc")
		write("huge.pgm", b"P5 70000 70000 255\nabc")
		write("huge.png", png(70000, 70000, 8, 0, 1, b"a"))
		write("text.txt", b"not an image\n")
	PYTHON
}

test_quantize() {
	local name mode levels
	for mode in rpc queue; do
		for name in small usual odd large; do
			expect 0 gpu quantize "$dir/$name.pgm" "$dir/got.pgm" -m $mode -q && cmp -s "$dir/$name.want4" "$dir/got.pgm" ||
				fail "quantize $name.pgm, $mode"
			expect 0 gpu quantize "$dir/$name.png" "$dir/got.pgm" -m $mode -q && cmp -s "$dir/$name.want4" "$dir/got.pgm" ||
				fail "quantize $name.png, $mode"
		done
		for levels in 1 256; do
			expect 0 gpu quantize - - -m $mode --levels $levels <"$dir/usual.pgm" && cmp -s "$dir/usual.want$levels" "$dir/out" ||
				fail "quantize to $levels levels, $mode"
			complains "64 x 64 pixels to $levels levels, transport ${server%%:*}, backend cpu" quantize
		done
	done
	expect 0 gpu quantize "$dir/colour.png" - && cmp -s "$dir/colour.want" "$dir/out" || fail "quantize in colours"
	expect 0 gpu quantize "$dir/usual.pgm" "$dir/got.png" --json &&
		json ".width == 64 and .height == 64 and .levels == 4 and .transport == \"${server%%:*}\"" quantize
	# What was written as PNG is read again, and has 4 levels as it is.
	expect 0 gpu quantize "$dir/got.png" - -l 256 && [[ $(tail -c 4096 "$dir/out" | od -An -v -tu1 -w1 | sort -u | wc -l) -le 4 ]] ||
		fail "levels of a quantized PNG"
}

test_bad_images() {
	local name
	for name in cut.png cut.pgm huge.pgm huge.png text.txt none.pgm; do
		expect 1 gpu quantize "$dir/$name" "$dir/bad.pgm" && complains "$name" "quantize $name"
	done
	[[ ! -e $dir/bad.pgm ]] || fail "a file was made of no image"
	expect 1 gpu quantize "$dir/usual.pgm" "$dir/none/out.pgm" && complains "none/out.pgm: No such" quantize
	expect 1 gpu quantize "$dir/usual.pgm" /dev/full && complains "No space" quantize
	expect 2 gpu quantize "$dir/usual.pgm"
	expect 2 gpu quantize "$dir/usual.pgm" - --json
	expect 2 gpu quantize "$dir/usual.pgm" - --levels 0
	expect 2 gpu quantize "$dir/usual.pgm" - --levels 257
	expect 2 gpu quantize "$dir/usual.pgm" - --mode fast
}

test_info() {
	expect 0 gpu info && says "^backend +cpu" info && says "^operations +quantize, echo" info && complains "transport" info
	expect 0 gpu info --json && json '.backend == "cpu" and .operations == ["quantize", "echo"] and .sessions_max > 0 and
		.job_max_bytes >= 4096 and .queues_max > 0 and .slots_max > 0' info
}

# bench WHAT ARGUMENTS: all results are right.
bench() {
	local what=$1
	shift
	expect 0 gpu bench --json "$@" && json ".total.distance == 0 and .total.requests_per_second > 0 and
		.total.latency_us_min > 0 and .total.latency_us_min <= .total.latency_us_p50 and
		.total.latency_us_p50 <= .total.latency_us_p99 and .total.latency_us_p99 <= .total.latency_us_max and
		.total.latency_us_mean > 0 and ([.passes[] | .distance] | add) == 0 and (.interrupted | not) and
		.transport == \"${server%%:*}\" and .backend == \"cpu\"" "bench $what"
}

test_bench() {
	local mode
	for mode in rpc queue; do
		bench "$mode" -m $mode -n "$images" --passes 3 && json ".total.images == 3 * $images and .mode == \"$mode\" and
			(.passes | length == 3) and .width == 64 and .levels == 4" "bench $mode"
		bench "$mode, most outstanding" -m $mode -n "$images" -p 1 -o 8192
		bench "$mode, one at a time" -m $mode -n 200 -p 1 -o 1 --reference && json '.reference | .ratio > 0 and .local_us > 0 and
			.rtt_us > 0' "bench $mode"
		bench "$mode, one cell" -m $mode -n 200 -p 1 --queues 1 --slots 1 && json ".queues == 1 and .slots == 1" bench
		bench "$mode, large" -m $mode -n 10 -p 1 -s 1201x1003 -l 7 --slots 2
		bench "$mode, small" -m $mode -n 500 -p 1 -s 1x1 -l 256
	done
	bench "by messages" -n "$images" -p 1 --no-immediate && json ".immediate | not" "bench --no-immediate"
	bench "by indices" -m queue -n "$images" -p 1 --read-indices
	bench "by indices, one at a time" -m queue -n 200 -p 1 -o 1 --read-indices
	expect 0 gpu bench -n 100 && says "^ +all +300 +0 " "bench in text" && says "mode rpc, backend cpu" "bench in text"
	expect 2 gpu bench -s 64
	expect 2 gpu bench -s 0x1
	expect 2 gpu bench -s 65536x65536
	expect 2 gpu bench -o 8193
	expect 1 gpu bench -s 8192x8192 -n 1 && complains "gpu.memory" "bench of too large images"
}

test_interrupted() {
	local mode status client
	for mode in rpc queue; do
		"$builddir/rdmactl" -H "$server" gpu bench -m $mode -n 4000000000 --json >"$dir/out" 2>"$dir/err" &
		client=$!
		sleep 1
		kill -INT $client
		wait $client
		status=$?
		[[ $status == 130 ]] || fail "gpu bench interrupted: exit status $status, not 130"
		json '.interrupted and .total.images > 0 and .total.distance == 0' "gpu bench interrupted"
	done
}

# What clients that die leave behind: nothing.
test_killed() {
	local mode client
	for mode in rpc queue rpc queue; do
		"$builddir/rdmactl" -H "$server" gpu bench -m $mode -n 4000000000 -o 8192 >/dev/null 2>&1 &
		client=$!
		sleep 0.5
		kill -KILL $client
		wait $client 2>/dev/null
	done
	for _ in {1..100}; do
		expect 0 gpu info --json
		[[ $(jq .sessions "$dir/out") == 1 ]] && break
		sleep 0.1
	done
	json '.sessions == 1' "sessions of killed clients beside the one that asks"
	[[ -z $(pgrep -P "$daemon") ]] || fail "worker processes are left: $(pgrep -aP "$daemon")"
}

test_example() {
	local compile flags
	compile=$(sed -n 's/^CC = //p' "$builddir/Makefile")
	flags=$(sed -n 's/^SANITIZER_CFLAGS = //p' "$builddir/Makefile")
	sed -n '/^\.Sh EXAMPLES/,/^\.Ed/p' "$srcdir/man/rdmad_gpu.3" | sed '1,/^\.Bd/d; /^\.Ed/d; s/\\e/\\/g' >"$dir/example.c"
	# shellcheck disable=SC2086 # words
	$compile $flags -std=c99 -Wall -Wextra -Werror -I"$srcdir/src/include" -c "$dir/example.c" -o "$dir/example.o" ||
		{ fail "the example of rdmad_gpu(3) does not compile"; return; }
	"$builddir/libtool" --quiet --mode=link $compile $flags "$dir/example.o" "$builddir/librdmad.la" -o "$dir/example" ||
		{ fail "the example of rdmad_gpu(3) does not link"; return; }
	"$dir/example" "$server" >"$dir/out" 2>"$dir/err" || fail "the example of rdmad_gpu(3): exit status $?"
	says "^1000 images, 4 levels, by ${server%%:*} on cpu$" "the example of rdmad_gpu(3)"
}

parts=(info quantize bad_images bench interrupted killed)
[[ -e $builddir/libtool ]] && parts+=(example) # where the library was built
make_images
start_daemon
for server in "${servers[@]}"; do
	for part in "${parts[@]}"; do
		before=$failures
		began=$SECONDS
		test_$part
		echo "$server: $part: $([[ $failures == "$before" ]] && echo ok || echo FAILED), $((SECONDS - began)) s"
	done
done
server=''
kill -TERM "$daemon"
wait "$daemon" || fail "rdmad, SIGTERM: exit status $?"
daemon=''
[[ $failures == 0 ]] || { tail -20 "$dir/log" >&2; echo "$failures failures" >&2; exit 1; }
