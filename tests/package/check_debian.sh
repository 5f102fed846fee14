#!/bin/bash
# check_debian.sh TARBALL FOLDER: the Debian packages, built from the packed sources into FOLDER: lintian says nothing against them,
# each file is in one of them, what they install runs, and a second build makes the same bytes. RDMAD_ONE_BUILD=1 leaves the second
# build out, as scripts/test does: it takes as long as the first.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
[[ $# == 2 ]] || { echo "usage: check_debian.sh TARBALL FOLDER"; exit 2; }
need dpkg-buildpackage dh lintian fakeroot jq
tarball=$(realpath "$1")
folder=$2
unset MAKEFLAGS MAKELEVEL LD_LIBRARY_PATH

# build WHERE: the packages, in that folder.
build() {
	rm -rf "$1"
	mkdir -p "$1" && tar xf "$tarball" -C "$1" || give_up "no sources"
	(cd "$1"/rdmad-* && dpkg-buildpackage -b -us -uc -rfakeroot) >"$dir/build.log" 2>&1 ||
		{ tail -n 40 "$dir/build.log" >&2; give_up "the packages are not built"; }
	rm -rf "${1:?}"/rdmad-*/
}

build "$folder"
lintian --allow-root --fail-on error,warning "$folder"/*.changes >"$dir/out" 2>&1 || fail "lintian: $(cat "$dir/out")"
for package in rdmad rdmactl rdmarun rdmad-gpu librdmad6 librdmad-dev librdma-lib1 librdma-lib-dev python3-rdmad rdmad-doc; do
	file=$(echo "$folder/${package}"_*.deb)
	[[ -e $file ]] || { fail "$package is missing"; continue; }
	dpkg-deb -x "$file" "$dir/root"
	while read -r path; do
		[[ $path == */ ]] || echo "$path"
	done < <(dpkg-deb -c "$file" | awk '{print $6}') >>"$dir/files"
done
grep -q '/man3/rdma_send\.3' "$dir/files" && grep -q '/man3/kv_get\.3' "$dir/files" || fail "functions lack pages of their names"
[[ -z $(sort "$dir/files" | uniq -d) ]] || fail "in two packages: $(sort "$dir/files" | uniq -d)"

dpkg-deb -e "$folder"/rdmad_*.deb "$dir/scripts"
grep -q 'deb-systemd-invoke .*rdmad.service' "$dir/scripts/postinst" || fail "an upgrade does not restart the service"
# Clients of the socket wait through an upgrade. A removal ends it first, as it would start the service again.
cat "$dir"/scripts/p{re,ost}inst 2>/dev/null | grep 'deb-systemd-invoke .*rdmad.socket' >"$dir/out" && fail "an upgrade stops the socket"
[[ $(grep -o 'stop .*rdmad[@*.a-z]*' "$dir/scripts/prerm" | grep -o 'rdmad[@*.a-z]*') == $'rdmad.socket\nrdmad@*.service\nrdmad.service' ]] ||
	fail "a removal stops: $(grep stop "$dir/scripts/prerm")"
# A removal leaves what the service kept, and a purge does not; twice is no error. Keys are the operator's.
mkdir -p "$dir/purged/etc/rdmad" "$dir"/purged/var/l{ib,og}/private/rdmad{,-second}
touch "$dir/purged/etc/rdmad/keys" "$dir/purged/var/lib/private/rdmad/log.1"
ln -s private/rdmad "$dir/purged/var/lib/rdmad"
for step in remove purge purge; do
	DPKG_ROOT=$dir/purged sh "$dir/scripts/postrm" "$step" >"$dir/out" 2>&1 || fail "postrm $step"
	[[ $step != remove || -e $dir/purged/var/lib/rdmad/log.1 ]] || fail "a removal takes the log of changes away"
done
[[ -e $dir/purged/etc/rdmad/keys ]] || fail "a purge takes the operator's keys away"
find "$dir/purged/var" -name '*rdmad*' -print -quit | grep . >"$dir/out" && fail "a purge leaves something"

# What was installed runs, from another root.
library=$(dirname "$(echo "$dir"/root/usr/lib/*/librdmad.so.6)")
export LD_LIBRARY_PATH=$library
rdmad=$dir/root/usr/sbin/rdmad rdmactl=$dir/root/usr/bin/rdmactl
"$rdmad" -t -c "$dir/root/etc/rdmad.conf" >"$dir/out" 2>&1 || fail "the sample configuration"
configure
start_daemon
for server in "${servers[@]}"; do
	expect 0 kv set key value
	expect 0 kv get key && says '^value$' "kv get"
done
server=''
if [[ -x /usr/bin/python3 ]]; then
	ends 0 "b'value'" env RDMAD_LIBRARY="$library/librdmad.so.6" PYTHONPATH="$dir/root/usr/lib/python3/dist-packages" \
		/usr/bin/python3 -c "import rdmad; print(rdmad.Store('${servers[0]}').get('key'))"
fi
stop_daemon
cc=${CC:-gcc}
printf '%s\n' '#include <rdmad/kv.h>' '#include <rdma_lib.h>' 'int main(void) { return !rdmad_version() || rdma_get_errno(); }' >"$dir/use.c"
# shellcheck disable=SC2086 # words
$cc $(PKG_CONFIG_PATH=$library/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir/root pkg-config --cflags librdmad rdma_lib) -o "$dir/use" "$dir/use.c" \
	-L"$library" -lrdmad -lrdma_lib || fail "a program does not build with the -dev packages"
ends 0 "" "$dir/use"

if [[ ! ${RDMAD_ONE_BUILD-} ]]; then
	build "$dir/again"
	for file in "$folder"/*.deb; do
		cmp "$file" "$dir/again/${file##*/}" || fail "${file##*/} is not the same when it is built again"
	done
fi
conclude
