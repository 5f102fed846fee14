#!/bin/bash
# The gpu service as people use it, with rdmad, its worker process and rdmactl from the build tree: images in both formats, and
# thousands compared with what another processor makes of them, in both modes. By TCP and UNIX sockets, or by RDMA where there
# is a device whose address RDMAD_GUEST_ADDR says. PARTS: the parts to try.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
images=${IMAGES:-$(part 2000)} || exit
need jq python3 cmp pgrep

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
	expect 1 gpu quantize "$dir/usual.pgm" "$dir/nowhere/out.pgm" && complains "cannot write" quantize
	! grep -q pixels "$dir/err" || fail "quantize tells of an image that it could not write"
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
			complains "64 x 64 pixels to $levels levels, transport $(transport_of), backend cpu" quantize
		done
	done
	expect 0 gpu quantize "$dir/colour.png" - && cmp -s "$dir/colour.want" "$dir/out" || fail "quantize in colours"
	expect 0 gpu quantize "$dir/usual.pgm" "$dir/got.png" --json &&
		json ".width == 64 and .height == 64 and .levels == 4 and .transport == \"$(transport_of)\"" quantize
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
	expect 2 gpu quantize "$dir/usual.pgm" "$dir/got.jpg" && complains 'as .png or .pgm' "a JPEG"
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
		.transport == \"$(transport_of)\" and .backend == \"cpu\"" "bench $what"
}

test_bench() {
	local mode
	for mode in rpc queue; do
		bench "$mode" -m $mode -n "$images" --passes 3 && json ".total.images == 3 * $images and .mode == \"$mode\" and
			(.passes | length == 3) and .width == 64 and .levels == 4" "bench $mode"
		bench "$mode, most outstanding" -m $mode -n "$images" -p 1 -o 8192
		bench "$mode, one cell" -m $mode -n 200 -p 1 --queues 1 --slots 1 && json ".queues == 1 and .slots == 1" bench
		bench "$mode, large" -m $mode -n 10 -p 1 -s 1201x1003 -l 7 --slots 2
	done
	bench "by messages" -n "$images" -p 1 --no-immediate && json ".immediate | not" "bench --no-immediate"
	bench "by indices" -m queue -n "$images" -p 1 --read-indices
}

# What differs by no transport.
test_bench_options() {
	local mode
	for mode in rpc queue; do
		bench "$mode, one at a time" -m $mode -n 200 -p 1 -o 1 --reference && json '.reference | .ratio > 0 and .local_us > 0 and
			.rtt_us > 0' "bench $mode"
		bench "$mode, two at a time" -m $mode -n 200 -p 1 -o 2 --reference && json '.reference | .rtt_us > 0 and (has("ratio") | not)' \
			"a ratio to one image of a time of two"
		expect 0 gpu bench -m $mode -n 200 -p 1 -o 1 --reference && says '^median / \(.* round trips \+ ' "bench $mode in text"
		expect 0 gpu bench -m $mode -n 200 -p 1 -o 2 --reference && says 'round trip of 64 bytes' "bench $mode in text"
		! grep -q '^median /' "$dir/out" || fail "a ratio to one image of a time of two, in text"
		bench "$mode, small" -m $mode -n 500 -p 1 -s 1x1 -l 256
	done
	bench "by indices, one at a time" -m queue -n 200 -p 1 -o 1 --read-indices
	expect 0 gpu bench -n 100 && says "^ +all +300 +0 " "bench in text" && says "mode rpc, backend cpu" "bench in text"
	expect 2 gpu bench -s 64
	expect 2 gpu bench -s 0x1
	expect 2 gpu bench -s 65536x65536
	expect 2 gpu bench -o 8193
	expect 1 gpu bench -s 8192x8192 -n 1 && complains "gpu.memory" "bench of too large images"
}

# start_bench MODE OUTSTANDING WORK: and wait until so many jobs are done. More than OUTSTANDING mean that results came back.
start_bench() {
	local work=$(($(work_done) + $3))
	"$rdmactl" -H "$server" gpu bench -m "$1" -n 4000000000 -o "$2" --json >"$dir/out" 2>"$dir/err" &
	clients=($!)
	wait_for "the work of rdmactl gpu bench -m $1" has_done $work
}

test_interrupted() {
	local mode status
	for mode in rpc queue; do
		start_bench $mode 16 20
		kill -INT "${clients[0]}"
		wait "${clients[0]}"
		status=$?
		clients=()
		[[ $status == 130 ]] || fail "gpu bench interrupted: exit status $status, not 130"
		json '.interrupted and .total.images > 0 and .total.distance == 0' "gpu bench interrupted"
	done
}

no_session() { expect 0 gpu info --json && jq -e '.sessions == 0' "$dir/out" >/dev/null; }

# What clients that die leave behind: nothing.
test_killed() {
	local mode
	for mode in rpc queue rpc queue; do
		start_bench $mode 1000 20
		kill -KILL "${clients[0]}"
		wait "${clients[0]}" 2>/dev/null
		clients=()
	done
	wait_for "the end of sessions of killed clients" no_session
	wait_for "the end of worker processes" has_no_processes || pgrep -aP "$daemon"
}

# A daemon that ends under a client says why.
test_daemon_ends() {
	local status
	start_bench rpc 16 20
	stop_daemon
	wait "${clients[0]}"
	status=$?
	clients=()
	[[ $status == 3 ]] || fail "gpu bench under a daemon that ends: exit status $status, not 3"
	complains "the server is shutting down" "gpu bench under a daemon that ends"
}

make_images
configure 'services = ["ping", "gpu"];' \
	"gpu = { backend = \"cpu\"; program = \"$builddir/rdmad-gpu\"; memory = \"32M\"; };"
start_daemon
keep_special
for server in "${servers[@]}"; do
	for part in ${PARTS-info quantize bad_images bench bench_options interrupted killed}; do
		before=$failures
		began=$SECONDS
		test_$part
		echo "$server: $part: $([[ $failures == "$before" ]] && echo ok || echo FAILED), $((SECONDS - began)) s"
	done
done
server=${servers[0]}
test_daemon_ends
server=''
conclude
