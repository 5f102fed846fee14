#!/bin/bash
# What an installation does to the configuration: the sample where there is none, nothing where there is one; and what it takes
# away again.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
conf=$dir/root/etc/rdmad.conf

conf_make() { # TARGET
	MAKEFLAGS='' MAKELEVEL='' make -s -C "$builddir" DESTDIR="$dir/root" sysconfdir=/etc "$1" >"$dir/out" 2>"$dir/err" || fail "make $1"
}

conf_make install-rdmad-conf
cmp -s "$srcdir/etc/rdmad.conf" "$conf" || fail "no sample was installed"
conf_make uninstall-rdmad-conf
[[ ! -e $conf ]] || fail "the sample is left behind"
mkdir -p "$dir/root/etc"
echo 'kv = { memory = "32M"; };' >"$conf"
conf_make install-rdmad-conf
[[ $(cat "$conf") == 'kv = { memory = "32M"; };' ]] || fail "a configuration was overwritten"
conf_make uninstall-rdmad-conf
[[ -s $conf ]] || fail "a configuration was taken away"
conclude
