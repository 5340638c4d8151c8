#!/bin/sh
# Rewrites the pinned files from pyproject.toml. Hashes are kept, addresses are not: each machine's own index serves them.
set -eu
cd "$(dirname "$0")/.."
compile() {
    out=$1; shift
    "${UV:-uv}" pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-annotate --no-header \
        --no-emit-index-url --custom-compile-command 'make lock' "$@" --output-file "requirements/$out.txt" pyproject.toml
}
compile dev --extra dev
for extra in operator agent-server trainer demo; do
    compile "$extra" --extra "$extra" --constraint requirements/dev.txt
done
