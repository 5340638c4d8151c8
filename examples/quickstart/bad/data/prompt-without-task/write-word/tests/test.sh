#!/bin/sh
# 0.3 the file exists, 0.6 the word is in it, 1.0 it holds the word and nothing else
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

grade() {
    mkdir -p /logs/verifier
    echo "$1" > /logs/verifier/reward.txt
    echo "$2"
    exit 0
}

# A link could lead to the expected answer in /tests, a pipe could hang the verifier.
regular() { [ -f "$1" ] && [ "$(readlink -f "$1")" = "$1" ]; }

# One newline at the end may be missing; nothing else may differ.
is_exactly() { printf "%s\n" "$2" | cmp -s - "$1" || printf "%s" "$2" | cmp -s - "$1"; }

regular /app/color.txt || grade 0 "/app/color.txt is no regular file"
is_exactly /app/color.txt blue && grade 1.0 "the word alone"
grep -qw blue /app/color.txt && grade 0.6 "the word among other text"
grade 0.3 "the file without the word"
