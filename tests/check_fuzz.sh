#!/bin/sh
# check_fuzz.sh: each fuzz target takes every input of its corpus, which has what once failed.
set -eu

corpus=${srcdir:-.}/tests/fuzz/corpus
for target in "$corpus"/*; do
	name=${target##*/}
	echo "$name"
	"./tests/fuzz/$name" -runs=0 "$target"
done
