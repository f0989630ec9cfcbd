#!/usr/bin/env bash
# Random faults by seeds, in simulated time and for real: from SEED on, RUNS of them. ONLY=simulation (a whole cluster), ONLY=endpoint (agents
# and the API endpoint, in simulated time, too) or ONLY=real for a part of it.
#
# The simulations are built with tokio's own switch for runtimes that draw from a seed, in a folder of its own, so that a seed is a run in
# every detail. Of real runs there is one for each twenty simulated ones, unless ONLY=real. The last lines say how often what happened.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seed=${SEED:-0}
runs=${RUNS:-200}
only=${ONLY:-}
if [[ ! "$seed$runs" =~ ^[0-9]+$ || ! "$only" =~ ^(|simulation|endpoint|real)$ ]]; then
    echo "SEED and RUNS are numbers, ONLY is simulation, endpoint or real" >&2
    exit 64
fi
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

simulate() { # test arguments...
    local test=$1 variables=(GROUNDPLANE_FIRST="$seed" GROUNDPLANE_SEEDS="$runs")
    shift
    # One run tells everything that happened in it; GROUNDPLANE_LOG=debug, what the processes said, too.
    ((runs == 1)) && variables=(GROUNDPLANE_SEED="$seed")
    echo "$test: seeds $seed to $((seed + runs - 1))"
    env "${variables[@]}" RUSTFLAGS="--cfg tokio_unstable" CARGO_TARGET_DIR="$target/chaos" \
        cargo test --locked -p groundplane-tests --test "$test" -- "$@" --nocapture | tee -a "$log" || failed=1
}

[[ "$only" =~ ^(|simulation)$ ]] && simulate sim_chaos whatever_fails
[[ "$only" =~ ^(|endpoint)$ ]] && simulate sim_endpoint
if [[ "$only" =~ ^(|real)$ ]]; then
    [[ "$only" == real ]] || runs=$(((runs + 19) / 20))
    echo "for real: seeds $seed to $((seed + runs - 1))"
    scripts/preflight.sh test
    cargo build --locked -p groundplane -p groundplane-sandbox -p groundplane-tests --bins
    "$target/debug/tools" ensure etcd kube-apiserver helm metallb-controller
    env GROUNDPLANE_FIRST="$seed" GROUNDPLANE_SEEDS="$runs" \
        cargo test --locked -p groundplane-tests --test e2e -- chaos:: --nocapture | tee -a "$log" || failed=1
fi
grep -E '^[0-9]+ runs' "$log" || true
exit "$failed"
