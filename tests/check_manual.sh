#!/bin/bash
# check_manual.sh: what rdmad-intro(7) and rdmad-tuning(7) tell a beginner to type. Their settings are right, their commands of this
# package succeed, in the order of the page and with a key; and each function of the libraries has a page of its own name.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"

# literal PAGE: the lines of its displays, as a reader sees them.
literal() { sed -n '/^\.Bd -literal/,/^\.Ed/p' "$srcdir/man/$1" | grep -v '^\.' | sed 's/\\-/-/g; s/\\(dq/"/g'; }

for page in rdmad-intro.7 rdmad-tuning.7; do
	literal "$page" | grep '^[a-z_.]* = .*;' >"$dir/settings"
	[[ -s $dir/settings ]] || fail "$page has no settings"
	while read -r line; do
		echo "$line" >"$dir/one.conf"
		ends 0 "" "$rdmad" -t --offline -c "$dir/one.conf"
	done < <(grep -v '^listen' "$dir/settings")
done

# The server of the page is the daemon of this test, and its files are below $dir. Its service, a second one, and its metrics are in
# tests/package/check_operator.sh, which has a whole machine.
mkdir -p "$dir/bin" "$dir/etc/rdmad"
printf '#!/bin/sh\nexec "%s" --control "%s" "$@"\n' "$rdmactl" "$dir/control.sock" >"$dir/bin/rdmactl"
chmod +x "$dir/bin/rdmactl"
configure "auth = { keys = \"$dir/etc/rdmad/keys\"; local = \"user\"; };"
export PATH=$dir/bin:$PATH HOME=$dir
unset XDG_CONFIG_HOME RDMAD_KEY_FILE
cd "$dir" || exit 1
commands() {
	literal rdmad-intro.7 | sed -n 's/^[#$] //p' | grep -v '^apt-get\|^systemctl\|^journalctl\|^chown\|^rdmad -t\|second\|:74[78]' |
		sed "s,/etc/rdmad,$dir/etc/rdmad,g; s,\(rdma://\)\?10\.0\.0\.1,tcp://$1,"
}
# The keys come first, as the daemon of this test asks for one from the beginning.
commands 127.0.0.1 | grep 'key new\|mkdir' | while read -r line; do bash -ec "umask 077; $line" 2>"$dir/err" || exit; done || fail "the first key"
start_daemon
address=${servers[0]#*://}
for ((i = 0; i < ${#servers[@]}; i++)); do [[ ${servers[i]} != tcp://* ]] || address=${servers[i]#*://}; done
export RDMAD_HOST=tcp://$address
commands "$address" | grep -v 'key new' >"$dir/commands"
[[ $(grep -c '^rdmactl' "$dir/commands") -ge 8 && $(grep -c 'key check' "$dir/commands") == 1 ]] || fail "rdmad-intro(7) has the commands $(cat "$dir/commands")"
while read -r line; do
	ends 0 "" bash -ec "$line"
done < <(grep 'install\|config/rdmad' "$dir/commands"; grep -v 'install\|config/rdmad' "$dir/commands")
stop_daemon

cd "$builddir" || exit 1
MAKEFLAGS='' MAKELEVEL='' make -s DESTDIR="$dir/root" man3dir=/man3 install-manual-links >"$dir/out" 2>"$dir/err" || fail "make install-manual-links"
for name in rdma_send rdma_iallreduce kv_get rdmad_channel_put; do
	page=$(sed -n 's,^\.so man3/,,p' "$dir/root/man3/$name.3")
	[[ $page ]] && grep -q "^\.Nm $name\b" "$srcdir/man/$page" || fail "$name has the page \"$page\""
done
for name in $(sed -n 's/^\t*\([a-z0-9_]*\);$/\1/p' "$srcdir"/src/client/librdmad.map "$srcdir"/src/peer/librdma_lib.map); do
	[[ -e $dir/root/man3/$name.3 || -e $srcdir/man/$name.3 ]] || fail "there is no page $name(3)"
done
MAKEFLAGS='' MAKELEVEL='' make -s DESTDIR="$dir/root" man3dir=/man3 uninstall-manual-links >"$dir/out" 2>"$dir/err" || fail "make uninstall-manual-links"
[[ ! $(find "$dir/root/man3" -type f) ]] || fail "links stay behind: $(ls "$dir/root/man3")"
conclude
