#!/bin/bash
# rdma_lib as its users have it: what the library exports, that it lives beside librdmacm and librdmad in one program, the program
# that its interface was first written down with, and those of its manual page and of README.md, which compile without a warning and run.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
need nm pkg-config

library=$builddir/.libs/librdma_lib.so
[[ -e $library ]] || { echo "$test_name: the library was not built here"; exit 77; }
compile=$(sed -n 's/^CC = //p' "$builddir/Makefile")
sanitizers=$(sed -n 's/^SANITIZER_CFLAGS = //p' "$builddir/Makefile")
export LD_LIBRARY_PATH="$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PKG_CONFIG_PATH="$builddir"
flags=$(pkg-config --define-variable=includedir="$srcdir/src/include" --define-variable=libdir="$builddir/.libs" \
	--cflags --libs rdma_lib) || fail "pkg-config does not know rdma_lib"

# A network of its own, where any port and address is free.
alone=(unshare -rn bash -c 'ip link set lo up && ip addr add 192.168.1.1/24 dev lo && ip addr add 192.168.1.10/24 dev lo &&
	exec "$@"' alone)
"${alone[@]}" true 2>/dev/null || alone=()

# make_program SOURCE FLAG...: beside its source, without its .c
make_program() {
	local source=$1
	shift
	# shellcheck disable=SC2086 # words
	$compile $sanitizers "$@" -Wall -Wextra -Werror "$source" -o "${source%.c}" $flags >"$dir/out" 2>"$dir/err" ||
		fail "$(basename "$source") does not compile: $*"
}

# --- names
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort -u; }
# Declarations begin at the line's begin; macros, types and inline functions are none.
sed -nE '/^(static|typedef|[#/\t *])/!s/.*\b(rdma_[a-z_]+)\(.*/\1/p' "$srcdir/src/include/rdma_lib.h" >"$dir/declared"
# rdma_init() is a macro, too: its function stands in parentheses.
echo rdma_init >>"$dir/declared"
sort -u -o "$dir/declared" "$dir/declared"
exported "$library" >"$dir/exported"
diff "$dir/declared" "$dir/exported" >"$dir/out" || fail "the library exports other names than rdma_lib.h has"
[[ $(wc -l <"$dir/exported") -gt 70 ]] || fail "few names are exported"
cm=$(ldd "$library" | awk '/librdmacm/ { print $3 }')
if [[ -n $cm ]]; then
	exported "$cm" | comm -12 - "$dir/exported" >"$dir/out"
	[[ ! -s $dir/out ]] || fail "librdmacm has these names, too"
fi
exported "$builddir/.libs/librdmad.so" | grep '^rdma_' >"$dir/out" && fail "librdmad exports names of rdma_lib or librdmacm"

cat >"$dir/together.c" <<'PROGRAM'
#include <rdma_lib.h>
#include <rdma/rdma_cma.h>
#include <rdmad/rdmad.h>

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel(); /* NULL where there is no device */
	rdma_context *ctx = rdma_init("127.0.0.1", 0, 0, true);

	printf("%s %d %d\n", rdmad_version(), rdma_port(ctx) > 0, rdma_get_errno());
	if (channel)
		rdma_destroy_event_channel(channel);
	rdma_cleanup(ctx);
	return 0;
}
PROGRAM
flags_before=$flags
flags="$flags -lrdma_lib -lrdmacm -lrdmad"
make_program "$dir/together.c"
flags=$flags_before
timeout 240 "$dir/together" >"$dir/out" 2>"$dir/err" || fail "one program with three libraries: exit status $?"
grep -q ' 1 0$' "$dir/out" || fail "one program with three libraries says something else"

# --- the program that the interface was written down with, as it stands there
cat >"$dir/document.c" <<'PROGRAM'
#include "rdma_lib.h"

int main() {
    // Initialize client context
    rdma_context *ctx = rdma_init("192.168.1.10", 5555, 4096, false);
    if (!ctx) {
        fprintf(stderr, "Failed to initialize RDMA: %s\n", rdma_get_error());
        return 1;
    }

    // Connect to server
    int server_idx = rdma_connect_peer(ctx, "192.168.1.1", 5555);
    if (server_idx < 0) {
        fprintf(stderr, "Failed to connect: %s\n", rdma_get_error());
        rdma_cleanup(ctx);
        return 1;
    }

    // Send data
    const char *message = "Hello RDMA!";
    if (rdma_send(ctx, server_idx, message, strlen(message) + 1) < 0) {
        fprintf(stderr, "Send failed: %s\n", rdma_get_error());
    }

    // Cleanup
    rdma_cleanup(ctx);
    return 0;
}
PROGRAM
cat >"$dir/server.c" <<'PROGRAM'
#include <rdma_lib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	rdma_context *ctx = rdma_init("192.168.1.1", 5555, 4096, true);
	int status = 1, peer;
	char text[100] = "";

	if (!ctx || argc < 2)
		return 2;
	if (fork() == 0) {
		execv(argv[1], argv + 1);
		_exit(127);
	}
	peer = rdma_accept_peer(ctx);
	printf("%d %s\n", rdma_recv(ctx, peer, text, sizeof(text)), text);
	wait(&status);
	rdma_cleanup(ctx);
	return status;
}
PROGRAM
make_program "$dir/document.c"
make_program "$dir/server.c"
if [[ ${#alone[@]} -gt 0 ]]; then
	timeout 240 "${alone[@]}" "$dir/server" "$dir/document" >"$dir/out" 2>"$dir/err" || fail "the first program: exit status $?"
	grep -qx '12 Hello RDMA!' "$dir/out" || fail "the first program says something else"
	[[ ! -s $dir/err ]] || fail "the first program complains"
else
	echo "$test_name: there are no networks of one's own here: the first program was compiled, and has nobody to talk to"
	timeout 240 "$dir/document" >"$dir/out" 2>"$dir/err" && fail "the first program connects to nobody"
	grep -q '^Failed to connect: ' "$dir/err" || fail "the first program does not say that it cannot connect"
fi

# --- the manual's and README.md's
programs() {
	awk -v begin="$2" -v end="$3" -v place="$dir/$(basename "$1")" '
		$0 ~ begin { inside = 1; text = ""; next }
		inside && $0 ~ end { if (text ~ /int main\(/ && text ~ /rdma_lib\.h/) printf "%s", text >(place "." ++n ".c"); inside = 0; next }
		inside { gsub(/\\e/, "\\"); text = text $0 "\n" }' "$1"
}
programs "$srcdir/man/rdma_lib.3" '^\.Bd -literal' '^\.Ed'
programs "$srcdir/README.md" '^```c$' '^```$'
for source in "$dir"/*.[0-9].c; do
	make_program "$source" -std=c99 -pedantic
	make_program "$source" -std=gnu11
done
cat >"$dir/both" <<'SCRIPT'
"$1" "$3" >"$4.server" 2>&1 &
for try in $(seq 600); do
	"$2" 127.0.0.1 "$3" >"$4" 2>&1 && break
	sleep 0.1
done
wait $!
SCRIPT
port=5555
[[ ${#alone[@]} -gt 0 ]] || port=$((20000 + $$ % 10000))
timeout 240 "${alone[@]}" bash "$dir/both" "$dir/rdma_lib.3.1" "$dir/rdma_lib.3.2" "$port" "$dir/out" 2>"$dir/err" ||
	fail "the manual's server: exit status $?"
grep -qx 'hello, over shm' "$dir/out" || [[ -n ${RDMAD_GUEST_ADDR:-} ]] || fail "the manual's client says something else"
grep -q 'it has disconnected' "$dir/out.server" || fail "the manual's server says something else: $(cat "$dir/out.server")"

board=$(grep -l rdma_fetch_add "$dir"/rdma_lib.3.*.c) || fail "the manual has no program with a window"
board=${board%.c}
timeout 240 "${alone[@]}" bash "$dir/both" "$board" "$board" "$port" "$dir/out" 2>"$dir/err" ||
	fail "the manual's window: exit status $?: $(cat "$dir/out" "$dir/out.server")"
grep -q '^written, counted by the ' "$dir/out" || fail "the manual's window says something else to its user"
grep -qx 'line 0, of peer 0: hello' "$dir/out.server" || fail "the manual's window says something else to its owner"

echo "$(wc -l <"$dir/exported") names, $(find "$dir" -name '*.c' | wc -l) programs"
conclude
