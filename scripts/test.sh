#!/usr/bin/env bash
# All checks and tests, one after the other, with a summary at the end. Called by `make test`.
#
#   scripts/test.sh         everything a change must pass
#   scripts/test.sh all     with more property cases, emulated processors, fuzzing and cargo-deny on top
source "$(dirname "$0")/lib.sh"
level=${1:-normal}
export STEAD=$TARGET/debug/stead
# What tests measure of their odd options is nothing for programs to go by.
export STEAD_CACHE=$BUILD/cache
export STEAD_STATE=$BUILD/state
# A daemon of this machine has nothing to do with them; those that want one begin their own.
export STEAD_SOCKET=none
# What is built from the beginning, as in a fresh clone, is there sooner without what it takes to build parts of it anew, and on half of the
# disk space. Where somebody develops that is there, and is kept.
[ -n "$(ls -A "$TARGET/debug/incremental" 2>/dev/null)" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
logs=$BUILD/logs
mkdir -p "$logs"
summary=()
failed=0
# Logs of steps that have failed.
wrong=()
beside=(--numprocesses auto --maxprocesses 8 --dist worksteal)

# step NAME COMMAND...: runs it, keeps its output, notes how it ended. Later steps run in any case.
step() {
  local name=$1 log start result note
  shift
  log=$logs/${name//[^a-z0-9]/-}.log
  say "$name: $*"
  start=$SECONDS
  if "$@" 2>&1 | tee "$log"; then result=ok; else result=FAILED failed=$((failed + 1)) wrong+=("$log"); fi
  note=$(count "$log")
  summary+=("$(printf '%-8s %-22s %5d s   %s' "$result" "$name" $((SECONDS - start)) "$note")")
}

# aside NAME [after OTHER] COMMAND...: begins it beside the steps that follow, of those that wait much of the time, or once what was begun as
# OTHER has ended; `gather NAME` waits for it, and is its step.
declare -A aside_pid
aside() {
  local name=$1 after='' log=$logs/${1//[^a-z0-9]/-}.log
  shift
  if [ "$1" = after ]; then
    after=${aside_pid[$2]}
    say "$name, beside what follows, after $2: ${*:3}"
    shift 2
  else
    say "$name, beside what follows: $*"
  fi
  rm -f "$log.took"
  {
    [ -z "$after" ] || tail --pid="$after" -f /dev/null
    begun=$SECONDS result=0
    # Which passes it on to all that was begun when it is to end.
    timeout 0 "$@" &
    trap 'kill $!' TERM
    wait $! || result=$?
    echo $((SECONDS - begun)) >"$log.took"
    exit $result
  } >"$log" 2>&1 </dev/null &
  aside_pid[$name]=$!
}
gather() {
  local name=$1 result=ok log=$logs/${1//[^a-z0-9]/-}.log
  say "$name"
  wait "${aside_pid[$name]}" || { result=FAILED failed=$((failed + 1)) wrong+=("$log"); }
  unset "aside_pid[$name]"
  cat "$log"
  summary+=("$(printf '%-8s %-22s %5d s   %s' "$result" "$name" "$(cat "$log.took")" "$(count "$log"), beside others")")
}
trap 'kill "${aside_pid[@]}" 2>/dev/null || true' EXIT

# How all steps so far have ended: also of those before one without which no other can be.
tell() {
  say "summary"
  printf '%s\n' "${summary[@]}"
  [ "$failed" = 0 ] || printf '\n%d step(s) failed; their output is in .build/logs\n' "$failed"
  local log
  for log in "${wrong[@]}"; do
    printf '\n%s:\n' "${log#"$ROOT/"}"
    reasons "$log"
  done
}

# Why a step has failed, as far as that shows: what programs for tests and compilers mark as errors, or else its end. A test may fail for the
# reason that it wants to see, so that the last ones count.
reasons() {
  local marked='^(E  |FAILED |ERROR |error|test .* FAILED$|thread .* panicked at )'
  grep -aE -A1 "$marked" "$1" | cut -c1-300 | tail -n 40 | grep . || tail -n 10 "$1" | cut -c1-300
}

# How many tests a log tells of, skipped ones named, and sections of a benchmark, of which some need what is not installed.
count() {
  awk '/^test result:/ { for (i = 2; i <= NF; i++) { if ($i == "passed;") p += $(i-1);
         if ($i == "failed;") f += $(i-1); if ($i == "ignored;") s += $(i-1) } t = 1 }
       / in [0-9.]+s/ && /(passed|failed|skipped|error)/ && !/^test result/ {
         gsub(/[=,]/, ""); for (i = 2; i <= NF; i++) { if ($i == "passed") p += $(i-1);
         if ($i ~ /^(failed|errors?)$/) f += $(i-1); if ($i == "skipped") s += $(i-1) } t = 1 }
       /^(peers|reading|staging|active|streams), [a-z0-9]+: / { if (/LEFT OUT/) s++; else if (/FAILED/) f++; else p++; t = 1 }
       END { if (t) printf "%d passed, %d failed, %d skipped", p, f, s }' "$1"
}

# Nothing that the default build runs with is MPI, HDF5 or NetCDF, by the linker's own word.
linked() { ! ldd "$STEAD" | tee /dev/stderr | grep -iE 'mpi|hdf5|netcdf'; }

# A disk that fills up in the middle fails tests for a reason that none of them names.
space=$(($(df --output=avail -k . | tail -1) / 1048576))
[ "$space" -ge 4 ] || die "only $space GB are free on the disk of $ROOT" \
  "from a fresh clone the tests need about 12 GB, 4 GB after a first run: remove what you do not need"
# Packages are fetched and unpacked while the code is looked at and built, which does not need them.
scripts/setup.sh "$([ "$level" = all ] && echo all || echo tools)"
aside "packages" scripts/setup.sh test
step "format" cargo fmt --all --check
step "build" cargo build "${WORKSPACE[@]}" --locked
if [ "$level" = all ]; then export PROPTEST_CASES=${PROPTEST_CASES:-4096} HYPOTHESIS_PROFILE=long STEAD_CRASHES=${STEAD_CRASHES:-1000} COMMANDS=all STEAD_TESTS=all; fi
step "build of tests" cargo test --workspace --locked --no-run
# A hang is to end, whatever it is in: the log has the names of tests that take over a minute.
within=(timeout --kill-after=60 "$([ "$level" = all ] && echo 10800 || echo 1800)")
aside "unit and property" "${within[@]}" cargo test --workspace --locked --no-fail-fast
# The programs beside them have no library: they bring the features that everything has elsewhere here (crates/bench).
step "models" "${within[@]}" cargo test --locked -p stead-read -p stead-stream -p stead-bench -p xtask \
  --features stead-read/shuttle,stead-stream/shuttle --lib model
# As it was built above: by itself it would be built once more, with features of its own.
step "tidy" "$TARGET/debug/xtask" tidy
step "links" "$TARGET/debug/xtask" deps
step "linked libraries" linked
had=$failed
gather "packages"
[ "$failed" = "$had" ] || { tell; die "the Python packages of the tests could not be installed" "run: scripts/setup.sh test"; }
step "test data" "$PYTHON" scripts/fetch_flights.py "$BUILD/data"
# Compilers, Valgrind and most kernels on small files keep one core busy: as many tests at a time as there are cores, up to 8.
step "oracles" "${within[@]}" "$PYTHON" -m pytest -q -rsfE "${beside[@]}" tests/oracle
step "C and C++" "${within[@]}" "$PYTHON" -m pytest -q -rsfE "${beside[@]}" tests/c
gather "unit and property"
# Ranks of MPI may be Python.
step "python package" scripts/python.sh dev
# They wait for deadlines and kills most of the time, and those of the package for other programs. Two lanes of two workers each are what two
# cores bear: this one, and that of MPI.
aside "faults" "${within[@]}" "$PYTHON" -m pytest -q -rsfE --numprocesses 2 --dist worksteal tests/faults
aside "python" after "faults" "${within[@]}" "$PYTHON" -m pytest -q -rsfE --numprocesses 2 --dist loadfile tests/python
step "mpi, build" scripts/mpi.sh
# What compilers say without making anything, one after the other, by what the tests of these lanes leave of the processors: whoever wants to
# know soon calls `make lint`.
idle=(nice -n 19)
aside "lint" "${idle[@]}" cargo clippy --workspace --all-targets --locked -- -D warnings
# All of it, as what it needs is then that of the other builds; only what depends on these features is looked at again.
aside "lint of mpi" after "lint" "${idle[@]}" cargo clippy "${WORKSPACE[@]}" --features stead-mpi-capi/conformance,stead-cli/mpi \
  --all-targets --locked -- -D warnings
aside "api docs" after "lint of mpi" env RUSTDOCFLAGS='-D warnings' "${idle[@]}" cargo doc --workspace --no-deps --locked
# They are a workspace of their own; that they compile is all that is looked at here.
aside "fuzz targets" after "api docs" "${idle[@]}" cargo check --manifest-path fuzz/Cargo.toml --no-default-features --locked --target-dir "$TARGET"
looks=("lint" "lint of mpi" "api docs" "fuzz targets")
if [ "$(uname -m)" = aarch64 ]; then
  summary+=("skipped  code for NEON                    this machine has it; the unit tests above ran it")
elif rustup target list --installed 2>/dev/null | grep -qx aarch64-unknown-linux-gnu; then
  aside "code for NEON" after "fuzz targets" "${idle[@]}" scripts/neon.sh check
  looks+=("code for NEON")
else
  summary+=("skipped  code for NEON                    rustup has no target aarch64-unknown-linux-gnu")
fi
# Ranks wait for each other and for deadlines most of the time. Files of tests share labs, so each is of one worker; they come in an order
# of their own (tests/mpi/conftest.py).
step "mpi" "${within[@]}" "$PYTHON" -m pytest -q -rsfE --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/mpi
# Those of a page go on where the ones before them have been.
step "documents" "${within[@]}" "$PYTHON" -m pytest -q -rsfE --numprocesses 2 --dist loadfile tests/docs
NO_MKDOCS_2_WARNING=1 step "site" "$BUILD/venv/bin/mkdocs" build --strict --quiet
gather "faults"
gather "python"
for look in "${looks[@]}"; do gather "$look"; done
# What they measure here is nothing for anybody: that they run, and that all find the same.
aside "streams, small" "$PYTHON" bench/streams.py "$STEAD" "$BUILD/bench" "$BUILD/bench" --scale 0.01 --runs 1 --check
step "benchmarks, small" "$PYTHON" bench/run.py "$STEAD" "$BUILD/bench" "$BUILD/bench" \
  --scale 0.001 --runs 1 --installed --check
step "reading, small" "$PYTHON" bench/reading.py "$STEAD" "$BUILD/bench" "$BUILD/bench" \
  --scale 0.001 --runs 1 --tasks 2,300,5000 --check
gather "streams, small"
# These by themselves: the first one takes the page cache from all, and of the second one a part whose time is over is left out.
step "staging, small" "$PYTHON" bench/staging.py "$STEAD" "$BUILD/bench" "$BUILD/bench" --scale 0.002 --runs 1 --check
sections=()
[ "$level" = all ] || sections=(--only wire,asks,vector,nine)
step "near the data, small" "$PYTHON" bench/active.py "$BUILD/mpi/openmpi/stead" "$BUILD/bench" "$BUILD/bench" \
  --bench "$TARGET/debug/stead-bench" --scale 0.0001 --runs 1 --check "${sections[@]}"
if [ "$level" = all ]; then
  step "first use" "$PYTHON" tests/docs/first_use.py "$BUILD/first"
  # The unit tests above took every sort of vectors that this machine has; whole runs take the best one.
  STEAD_SIMD=portable step "without vectors" cargo test --locked --no-fail-fast -p stead-kernel -p stead-format -p stead-run -p stead
  if [ "$(uname -m)" = x86_64 ]; then
    step "NEON, emulated" scripts/neon.sh test
    CASES=4 step "AVX-512, emulated" scripts/avx512.sh
  else
    summary+=("skipped  AVX-512, emulated                only on x86-64")
  fi
  step "fuzz" scripts/fuzz.sh "${SECONDS_PER_TARGET:-120}"
  if cargo deny --version >/dev/null 2>&1; then
    step "cargo deny" cargo deny --offline check licenses bans sources
  else
    summary+=("skipped  cargo deny                       cargo-deny is not installed; tidy has checked licences and sources")
  fi
fi

tell
[ "$failed" = 0 ] || exit 1
printf '\nall passed in %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
