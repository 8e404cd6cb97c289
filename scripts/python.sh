#!/usr/bin/env bash
# Builds the Python package and installs it into .build/venv, as `pip install .` does elsewhere.
#
#   scripts/python.sh [PROFILE]   built by this profile of Cargo.toml; release if none is named
source "$(dirname "$0")/lib.sh"
profile=${1:-release}

[ -x "$PYTHON" ] || die "there is no Python environment in .build/venv" "run: scripts/setup.sh test"
# Built to be tested, it takes what the other tests have built.
options="--profile $profile"
[ "$profile" != dev ] || options+=" --features tested"
# The tools are those of the environment, so nothing is fetched; what cargo has built already is used again.
export PATH=$VENV/bin:$PATH
"$PYTHON" -m pip install --quiet --no-build-isolation --no-deps --force-reinstall \
  --config-settings=build-args="$options" .
"$PYTHON" -c 'import stead; print("installed stead", stead.__version__)'
