# Sourced by the other scripts: where things are. Everything that is made lies inside the clone.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
BUILD=$ROOT/.build
VENV=$BUILD/venv
PYTHON=$VENV/bin/python
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
export PIP_CACHE_DIR=$BUILD/pip PIP_DISABLE_PIP_VERSION_CHECK=1
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
