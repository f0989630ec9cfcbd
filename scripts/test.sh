#!/usr/bin/env bash
# Every check of the repository, each a step with its time and its log, and one summary at the end.
#   test.sh         all of it
#   test.sh quick   format, lint, unit tests
# Fails if a step does. What cannot be run on this machine is skipped, and said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/preflight.sh test

readonly QUICK=${1:-}
readonly LOGS="${GROUNDPLANE_BUILD_DIR:-.build}/logs"
readonly TAIL=40
mkdir -p "$LOGS"
# Logs are read by people: no colours in them, no backtraces unless asked for (GROUNDPLANE_BACKTRACE=1); no proxies between processes on loopback.
export CARGO_TERM_COLOR=never NO_PROXY=127.0.0.1,localhost,::1 no_proxy=127.0.0.1,localhost,::1
export RUST_BACKTRACE="${GROUNDPLANE_BACKTRACE:-0}"

names=() results=() seconds=() notes=()
failures=0

record() { # name result seconds note
    names+=("$1") results+=("$2") seconds+=("$3") notes+=("$4")
}

# The sum of all `test result:` lines of a log.
counted() {
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8; any = 1 }
         END { if (any) { printf "%d passed, %d failed", passed, failed; if (ignored) printf ", %d ignored", ignored } }' "$1"
}

step() { # name command...
    local name=$1 begun=$SECONDS log result=ok
    shift
    log="$LOGS/test-${name//[^a-z]/-}.log"
    printf '%-28s' "$name"
    "$@" >"$log" 2>&1 </dev/null || result=FAILED
    local took=$((SECONDS - begun)) note
    note=$(counted "$log")
    printf '%-8s %5d s  %s\n' "$result" "$took" "$note"
    record "$name" "$result" "$took" "$note"
    [[ $result == ok ]] && return 0
    failures=$((failures + 1))
    if ((failures == 1)); then
        # The lines that say why, where the tests print them, else the end.
        echo "----- the end of $log"
        grep -nE '^error|panicked at|^test .* FAILED|^failures:' "$log" | tail -n 20 || true
        echo "-----"
        tail -n "$TAIL" "$log"
        echo "-----"
    else
        echo "      see $log"
    fi
    return 1
}

skip() { # name why
    printf '%-28s%-8s %5s    %s\n' "$1" skipped "" "$2"
    record "$1" skipped 0 "$2"
}

# Runs the integration tests whose names fit the pattern; those that do not fit it, where it begins with `!`.
run_targets() { # pattern
    local wanted=yes pattern=${1#!} path name fits options=()
    [[ "$1" == !* ]] && wanted=no
    for path in {tests,tests/sandbox,proto,services/*}/tests/{*.rs,*/main.rs}; do
        [[ -f "$path" ]] || continue
        name=$(basename "$path" .rs)
        [[ "$name" == main ]] && name=$(basename "$(dirname "$path")")
        fits=no
        [[ "$name" =~ ^($pattern)$ ]] && fits=yes
        [[ "$fits" == "$wanted" ]] && options+=(--test "$name")
    done
    if ((${#options[@]} == 0)); then
        echo "no test is called $1"
        return 0
    fi
    cargo test --workspace --locked --no-fail-fast "${options[@]}"
}

# The end-to-end tests mostly wait: for intervals, for probes, for other processes. So more of them run at a time than there are cores.
# Those of the API endpoint take turns, since they break the API servers of the two control planes that they share: they are a process of
# their own beside the others, whose threads would wait for them else.
end_to_end() {
    local threads=$((2 * $(nproc))) turns="$LOGS/test-end-to-end-in-turns.log" pid failed=0
    local run=(cargo test --workspace --locked --no-fail-fast --test e2e)
    "${run[@]}" --no-run || return 1
    "${run[@]}" -- "$TURNS" --test-threads 2 >"$turns" 2>&1 &
    pid=$!
    "${run[@]}" -- --skip "$TURNS" --test-threads "$threads" || failed=1
    wait "$pid" || failed=1
    cat "$turns"
    return "$failed"
}

documented() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked; }

summary() {
    local index total=0
    echo
    echo "summary"
    for index in "${!names[@]}"; do
        printf '  %-28s%-8s %5d s  %s\n' "${names[index]}" "${results[index]}" "${seconds[index]}" "${notes[index]}"
        total=$((total + seconds[index]))
    done
    printf '  %-28s%-8s %5d s\n' "all of it" "$( ((failures)) && echo FAILED || echo ok)" "$total"
    # Every test of every step, in one line that programs read.
    printf '%s\n' "${notes[@]}" | awk '/passed, / { passed += $1; failed += $3 } END { printf "%d passed, %d failed\n", passed, failed }'
}

# The patterns of the tests in which everything runs together: in simulated time, or as processes on a real Kubernetes API.
readonly SIMULATED='sim_.*' REAL='e2e'
# Of the latter, those that take turns.
readonly TURNS='failover::'

step "format" cargo fmt --all --check || true
step "lint" cargo clippy --workspace --all-targets --locked -- -D warnings || true
if [[ "$QUICK" == quick ]]; then
    step "unit tests" cargo test --workspace --locked --no-fail-fast --lib --bins || true
elif step "build" cargo build --workspace --all-targets --locked; then
    step "tools" "${CARGO_TARGET_DIR:-target}/debug/tools" ensure || true
    step "unit tests" cargo test --workspace --locked --no-fail-fast --lib --bins || true
    step "contracts and architecture" run_targets "!chart|$REAL|$SIMULATED" || true
    step "chart" run_targets chart || true
    step "simulation" run_targets "$SIMULATED" || true
    step "end to end" end_to_end || true
    step "documentation" documented || true
    if ! cargo deny --version >/dev/null 2>&1; then
        skip "dependencies" "cargo-deny is not installed: cargo install cargo-deny --locked"
    elif cargo deny fetch db >"$LOGS/test-advisories.log" 2>&1 </dev/null; then
        step "dependencies" cargo deny check || true
    else
        step "dependencies" cargo deny --offline check bans licenses sources || true
        skip "advisories" "the advisory database cannot be reached"
    fi
else
    for name in "tools" "unit tests" "contracts and architecture" "chart" "simulation" "end to end" "documentation" "dependencies"; do
        skip "$name" "it does not build"
    done
fi
summary
((failures == 0))
