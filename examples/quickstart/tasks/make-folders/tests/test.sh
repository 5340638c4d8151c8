#!/bin/sh
# 0.4 the outer directory exists, 1.0 the inner one too
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

directory() { [ -d "$1" ] && [ "$(readlink -f "$1")" = "$1" ]; }

directory /app/photos || grade 0 "/app/photos is no directory"
directory /app/photos/summer && grade 1.0 "both directories"
grade 0.4 "the outer directory only"
