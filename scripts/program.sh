#!/usr/bin/env bash
# Runs the demo or the benchmarks: builds what they run on, with progress, then the program. Its answer is ours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/preflight.sh

# An empty variable is one that was not given.
for variable in KEEP ONLY SIZE CLOUD; do
    [[ -n "${!variable:-}" ]] || unset "$variable"
done

program=$1
profile=debug
arguments=()
if [[ "$program" == bench ]]; then
    # What goes into an image, and no other, is measured.
    profile=dist
    arguments+=(--profile dist)
fi
# One build for all of them: a build of one package alone would choose other features, and compile most of it again.
echo "building groundplane, the sandbox cloud and the $program ($profile)"
cargo build --locked "${arguments[@]}" -p groundplane -p groundplane-sandbox -p groundplane-tests --bins
folder="${CARGO_TARGET_DIR:-target}/$profile"
"$folder/tools" ensure etcd kube-apiserver
exec "$folder/$program"
