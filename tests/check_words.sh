#!/bin/bash
# check_words.sh: scripts/check-words finds each kind of fault, in a source or a page that has one.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/lib.sh"
need python3
mkdir -p "$dir/src/room" "$dir/man" "$dir/docs"

# finds FAULT TEXT: in a source of this text.
finds() {
	printf '%s\n' "$2" >"$dir/src/room/a.c"
	ends 1 "src/room/a.c:1: $1" "$srcdir/scripts/check-words" "$dir"
}

printf '/* Counts. */\nint a;\n' >"$dir/src/room/a.c"
ends 0 "1 files, 0 faults" "$srcdir/scripts/check-words" "$dir"
finds "more than 120 columns" "int a; /* $(printf 'long %.0s' {1..30}) */"
finds "who or whoever without a noun" "/* Who waits goes first. */"
finds "who or whoever without a noun" $'/* It ends: whoever\n * waits goes first. */'
finds "those that, as a subject" "/* Those that wait go first. */"
finds "a program is it, not he" "/* The client and his message. */"
finds "cannot" "/* It can not wait. */"
finds "an opening without a subject" "/* Of a put: its bytes. */"
rm "$dir/src/room/a.c"

# finds_in PAGE FAULT TEXT: in a page of this text.
finds_in() {
	printf '%s\n' "$3" >"$dir/$1"
	ends 1 "$1:2: $2, without a noun" "$srcdir/scripts/check-words" "$dir"
	rm "$dir/$1"
}

finds_in man/a.3 "those that" $'.Sh NAME\nIt counts those\nthat wait.'
finds_in man/a.7 "those which" $'.It Li a\nThose which wait go first.'
finds_in README.md "whoever" $'# a\nWhoever waits goes first.'
finds_in docs/a.md "those that" $'# a\nAll, or those that wait.'
printf '.Sh NAME\nRequests that wait, and those of others.\n' >"$dir/man/a.3"
ends 0 "1 files, 0 faults" "$srcdir/scripts/check-words" "$dir"
rm "$dir/man/a.3"
ends 1 "0 files" "$srcdir/scripts/check-words" "$dir"
conclude
