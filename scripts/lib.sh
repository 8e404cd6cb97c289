# Sourced by the other scripts: where things are. Everything that is made lies inside the clone.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
BUILD=$ROOT/.build
VENV=$BUILD/venv
PYTHON=$VENV/bin/python
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
export PIP_CACHE_DIR=$BUILD/pip PIP_DISABLE_PIP_VERSION_CHECK=1
# What is built to be tested, all at once, so that what it shares has the same features and is built once. Not the extension of Python:
# maturin builds it with variables of its own for PyO3, and each of the two would build anew what the other one has built.
WORKSPACE=(--workspace --exclude stead-python)
# What a user's shell says must not leak into tests.
export LC_ALL=C.UTF-8
unset STEAD_SIMD

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

# The version, and what of it shared libraries have in their names: while the major version is 0, a minor version may change the
# interface. As in crates/capi/build.rs.
VERSION=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SERIES=${VERSION%%.*}
[ "$SERIES" != 0 ] || SERIES=$(cut -d. -f1-2 <<<"$VERSION")

# mpi_io MPICC FOLDER OPTION...: builds FOLDER/libstead_mpi_io.so with what FOLDER has of libstead and libstead_mpi
mpi_io() {
  local mpicc=$1 folder=$2
  shift 2
  "$mpicc" -std=c11 -O2 -g1 -fPIC -shared -fvisibility=hidden -pthread -Wall -Wextra "$@" -Iinclude crates/mpi-capi/c/*.c \
    -o "$folder/libstead_mpi_io.so" "-Wl,-soname,libstead_mpi_io.so.$SERIES" -Wl,--no-undefined '-Wl,-rpath,$ORIGIN' \
    "-L$folder" -lstead_mpi -lstead -ldl
}
