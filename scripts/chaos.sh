#!/usr/bin/env bash
# Random faults by seeds, in simulated time and for real: from SEED on, RUNS of them. ONLY=simulation or ONLY=real for one of the two.
#
# The simulation is built with tokio's own switch for runtimes that draw from a seed, in a folder of its own, so that a seed is a run in
# every detail. Of real runs there is one for each twenty simulated ones, unless ONLY=real.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seed=${SEED:-0}
runs=${RUNS:-200}
only=${ONLY:-}
if [[ ! "$seed$runs" =~ ^[0-9]+$ || ! "$only" =~ ^(|simulation|real)$ ]]; then
    echo "SEED and RUNS are numbers, ONLY is simulation or real" >&2
    exit 64
fi
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

failed=0
if [[ "$only" != real ]]; then
    echo "simulation: seeds $seed to $((seed + runs - 1))"
    variables=(GROUNDPLANE_FIRST="$seed" GROUNDPLANE_SEEDS="$runs")
    # One run tells everything that happened in it; GROUNDPLANE_LOG=debug, what the processes said, too.
    ((runs == 1)) && variables=(GROUNDPLANE_SEED="$seed")
    env "${variables[@]}" RUSTFLAGS="--cfg tokio_unstable" CARGO_TARGET_DIR="$target/chaos" \
        cargo test --locked -p groundplane-tests --test sim_chaos -- whatever_fails --nocapture || failed=1
    # The API endpoint has agents, and so a simulation, of its own.
    ((runs == 1)) || env "${variables[@]}" cargo test --locked -p groundplane-tests --test sim_endpoint || failed=1
fi
if [[ "$only" != simulation ]]; then
    [[ "$only" == real ]] || runs=$(((runs + 19) / 20))
    echo "for real: seeds $seed to $((seed + runs - 1))"
    scripts/preflight.sh test
    cargo build --locked -p groundplane -p groundplane-sandbox -p groundplane-tests --bins
    "$target/debug/tools" ensure etcd kube-apiserver
    env GROUNDPLANE_FIRST="$seed" GROUNDPLANE_SEEDS="$runs" \
        cargo test --locked -p groundplane-tests --test e2e -- chaos:: --nocapture || failed=1
fi
exit "$failed"
