#!/usr/bin/env bash
# Names everything that this machine lacks, one line each with how to get it, before anything is started.
#   preflight.sh test   what the tests need, too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly GO_MINIMUM=1.26
missing=()

lacks() { ! command -v "$1" >/dev/null 2>&1; }
older() { [[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" != "$2" ]]; }

# The toolchain is pinned by rust-toolchain.toml; rustup installs it and its components.
if lacks cargo; then
    missing+=("cargo: install rustup (https://rustup.rs), which brings the Rust that rust-toolchain.toml names")
else
    components_present() {
        cargo --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1
    }
    if ! components_present; then
        pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
        if ! lacks rustup; then
            echo "installing Rust $pinned with clippy and rustfmt"
            rustup toolchain install "$pinned" --profile minimal --component clippy --component rustfmt || true
        fi
        components_present || missing+=("Rust $pinned with clippy and rustfmt: rustup toolchain install $pinned --component clippy --component rustfmt")
    fi
fi

if lacks cc && lacks gcc && lacks clang; then
    missing+=("a C compiler (cc): apt-get install gcc libc6-dev, or dnf install gcc")
fi
if lacks git; then
    missing+=("git: apt-get install git, or dnf install git")
fi

# Only tests run the example providers.
if [[ "${1:-}" == test ]] && ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
    missing+=("Python 3.10 or later with venv, for the example providers: apt-get install python3-venv, or dnf install python3")
fi

# A real BGP daemon, for the tests. Debian's package is unpacked into the build folder, and nothing is installed.
bird_present() {
    [[ -e "${GROUNDPLANE_BUILD_DIR:-.build}/bird/complete" ]] || { ! lacks dpkg && ! lacks apt-get; } ||
        { PATH="$PATH:/usr/sbin:/usr/local/sbin"; ! lacks bird && ! lacks birdcl; }
}
if [[ "${1:-}" == test ]] && ! bird_present; then
    missing+=("bird 2, a BGP daemon that the tests peer with: apt-get install bird2, or dnf install bird")
fi

# Go builds etcd, kube-apiserver, helm and Jaeger, once. Where all are there, nobody needs it.
tools_present() {
    local bin="${GROUNDPLANE_BUILD_DIR:-.build}/bin" tool
    for tool in helm jaeger; do [[ -x "$bin/$tool" ]] || return 1; done
    [[ -n "${KUBEBUILDER_ASSETS:-}" ]] || [[ -x "$bin/etcd" && -x "$bin/kube-apiserver" ]]
}
if ! tools_present; then
    if lacks go; then
        missing+=("Go $GO_MINIMUM or later, which builds the Kubernetes API for the tests: https://go.dev/dl/")
    else
        found=$(go env GOVERSION | sed 's/^go//')
        if older "$found" "$GO_MINIMUM"; then
            missing+=("Go $GO_MINIMUM or later (this is $found), which builds the Kubernetes API for the tests: https://go.dev/dl/")
        fi
    fi
fi

if ((${#missing[@]})); then
    for line in "${missing[@]}"; do echo "missing: $line" >&2; done
    exit 1
fi
