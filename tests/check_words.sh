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
finds "a static function whose name is one word" $'static int take(struct s *s,\n\t\tint n)\n{\n}'
printf 'static int take(int n);\nstatic int take_in(int n)\n{\n\treturn take(n);\n}\nint take(int n)\n{\n}\n' >"$dir/src/room/a.c"
ends 0 "1 files, 0 faults" "$srcdir/scripts/check-words" "$dir"
rm "$dir/src/room/a.c"

# finds_in PAGE FAULT TEXT: in a page of this text.
finds_in() {
	printf '%s\n' "$3" >"$dir/$1"
	ends 1 "$1:2: $2" "$srcdir/scripts/check-words" "$dir"
	rm "$dir/$1"
}

# finds_nothing PAGE TEXT: in a page of this text.
finds_nothing() {
	printf '%s\n' "$2" >"$dir/$1"
	ends 0 "1 files, 0 faults" "$srcdir/scripts/check-words" "$dir"
	rm "$dir/$1"
}

finds_in man/a.3 "those that, without a noun" $'.Sh NAME\nIt counts those\nthat wait.'
finds_in man/a.7 "those which, without a noun" $'.It Li a\nThose which wait go first.'
finds_in README.md "whoever, without a noun" $'# a\nWhoever waits goes first.'
finds_in docs/a.md "those that, without a noun" $'# a\nAll, or those that wait.'
finds_nothing man/a.3 $'.Sh NAME\nRequests that wait, and those of others.'

words=$(printf 'word %.0s' {1..24})
long="a sentence of more than 25 words"
finds_in man/a.3 "$long" $'.Sh DESCRIPTION\nAnd '"$words"$'\nthen.'
finds_in man/a.3 "$long" $'.It Fl a\n'"$words"$'\n.Xr a 3\n.Fl b , c .'
finds_in README.md "$long" $'# a\n- '"$words"$' `of code`\n  and [more](of/it).'
finds_nothing man/a.3 $'.Sh DESCRIPTION\n'"$words"$'\n.Ql a b c d .\n'"$words end."
finds_nothing man/a.3 $'.Sh SYNOPSIS\n'"$words $words"$'\n.Sh EXAMPLES\n.Bd -literal\n'"$words $words"$'\n.Ed'
finds_nothing man/a.3 $'.Bl -column a\n.It a Ta '"$words $words"$'\n.El\n.Bl -tag\n.It a\n'"$words"$'\n.It b\n'"$words"$'\n.El'
finds_nothing README.md $'# a\n\n| '"$words $words"$' |\n\n```\n'"$words $words"$'\n```\n\n- '"$words"$'\n- '"$words"
finds_nothing docs/a.md $'# a\n'"$words $words"
ends 1 "0 files" "$srcdir/scripts/check-words" "$dir"
conclude
