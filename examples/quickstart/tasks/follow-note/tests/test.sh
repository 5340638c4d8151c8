#!/bin/sh
# 0.2 the file exists, 0.5 the city is in it, 1.0 the city alone: that takes reading the note first, a turn of its own
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

regular /app/city.txt || grade 0 "/app/city.txt is no regular file"
is_exactly /app/city.txt Lisbon && grade 1.0 "the city alone"
grep -qw Lisbon /app/city.txt && grade 0.5 "the city among other text"
grade 0.2 "not the city"
