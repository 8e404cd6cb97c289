#!/usr/bin/env bash
# Looks after the vectors of 64-bit ARM on other machines.
#
#   scripts/neon.sh check   compiles the tests, if rustup has the target; delimited text if there is a C compiler for it
#   scripts/neon.sh test    runs the tests of the rooms with vectors in QEMU (scripts/setup.sh all installs it)
source "$(dirname "$0")/lib.sh"
target=aarch64-unknown-linux-gnu
gcc=aarch64-linux-gnu-gcc
rooms=(-p stead-simd -p stead-kernel)

case ${1:-test} in
  check)
    if command -v $gcc >/dev/null; then rooms+=(-p stead-format); fi
    CC_aarch64_unknown_linux_gnu=$gcc cargo check --locked --tests --target $target "${rooms[@]}"
    ;;
  test)
    for tool in $gcc qemu-aarch64-static; do
      command -v $tool >/dev/null || die "$tool is missing" "run as root: scripts/setup.sh all"
    done
    export CC_aarch64_unknown_linux_gnu=$gcc CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
    # An emulated processor is some twenty times slower.
    export PROPTEST_CASES=${CASES:-16}
    run() { cargo test --locked --no-fail-fast --lib --target $target "$@"; }
    run -p stead-simd
    # What uses vectors.
    run -p stead-kernel -- bytes:: exact:: extremes:: gram:: hist:: kmeans:: normalize:: render::
    run -p stead-format -- delimited::
    ;;
  *) die "what is '$1'?" "say check or test" ;;
esac
