#!/bin/sh
# 0.3 the file exists, 0.5 it holds one number, 0.7 the right number among other text, 1.0 the right number alone
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

regular /app/count.txt || grade 0 "/app/count.txt is no regular file"
is_exactly /app/count.txt 17 && grade 1.0 "the number alone"
grep -qw 17 /app/count.txt && grade 0.7 "the right number among other text"
[ "$(wc -l < /app/count.txt)" -le 1 ] && grep -qxE '[0-9]+' /app/count.txt && grade 0.5 "a wrong number"
grade 0.3 "no number"
