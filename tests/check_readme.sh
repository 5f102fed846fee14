#!/bin/bash
# README.md's first session, word for word: each command succeeds, and prints the lines that stand behind it there, numbers and
# paths apart. What the quickstart leaves for it is made here, of the programs in the build tree.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"

plain() { sed -E 's,(^| )/[^ ]*,\1PATH,g; s/[0-9]+([.,:][0-9]+)*/N/g; s/N threads/N thread/; s/, AVX.*//; s/; not cuda: .*//; s/ +/ /g; s/ $//'; }

# prints LINE: so does what the last command wrote.
prints() { grep -qxF -- "$(plain <<<"$1")" <(plain <"$2"); }

# What the machine decides: whether there is RDMA.
depends() { [[ $1 == *"rdma: missing"* && -e /dev/infiniband ]]; }

session=$dir/session
awk '/^    \$ \. build\/quickstart\/env/ { inside = 1 } inside && !/^    / { exit } inside { print substr($0, 5) }' \
	"$srcdir/README.md" >"$session"
[[ $(grep -c '^\$' "$session") -gt 6 ]] || give_up "README.md has no first session"

configure "gpu = { program = \"$builddir/rdmad-gpu\"; backend = \"cpu\"; };"
mkdir -p "$dir/bin" "$dir/build/quickstart"
ln -s "$srcdir/docs" "$dir/docs"
printf '#!/bin/sh\nexec "%s" -c "%s" "$@"\n' "$rdmad" "$dir/rdmad.conf" >"$dir/bin/rdmad"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$rdmactl" >"$dir/bin/rdmactl"
chmod +x "$dir/bin/rdmad" "$dir/bin/rdmactl"
echo "export PATH='$dir/bin:$PATH' RDMAD_CONTROL='$dir/control.sock'" >"$dir/build/quickstart/env"

cd "$dir" || exit 1
out=$dir/out
: >"$dir/err"
while IFS= read -r line; do
	case $line in
	'$ rdmad &')
		eval "${line#\$ }" >"$dir/log" 2>&1
		daemon=$!
		logged "ready, workers"
		RDMAD_HOST=127.0.0.1:$(sed -n 's/.*listening on tcp 127.0.0.1://p' "$dir/log")
		export RDMAD_HOST # here the port is any that is free
		out=$dir/log
		;;
	'$ '*)
		out=$dir/out
		eval "${line#\$ }" >"$dir/out" 2>&1 </dev/null || fail "exit status $?: $line"
		;;
	*) depends "$line" || prints "$line" "$out" || fail "nothing like: $line" ;;
	esac
done <"$session"
await_daemon "the session's end"

# A user who has built by hand first is told what to do before the quickstart.
mkdir "$dir/tree" "$dir/tree/scripts"
cp "$srcdir/scripts/quickstart" "$dir/tree/scripts"
: >"$dir/tree/config.status"
ends 1 "make -C $dir/tree distclean" "$dir/tree/scripts/quickstart"
conclude
