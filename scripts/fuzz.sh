#!/usr/bin/env bash
# Runs every fuzz target for some seconds. A finding ends with a failure and stays in fuzz/artifacts.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]
source "$(dirname "$0")/lib.sh"
seconds=${1:-60}
[ $# -eq 0 ] || shift
scripts/setup.sh demo
command -v c++ >/dev/null || die "the fuzzer's runtime needs a C++ compiler" "run as root: apt-get install -y g++"
tools=$BUILD/tools
export PATH=$tools/bin:$PATH
if ! command -v cargo-fuzz >/dev/null; then
  say "installing cargo-fuzz into .build/tools"
  cargo install --quiet --locked --root "$tools" --version 0.13.2 cargo-fuzz
fi
# The options that fuzzing needs are marked unstable; this unlocks them on any toolchain.
export RUSTC_BOOTSTRAP=1
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(sed -n 's/^name = "\([a-z]*\)"$/\1/p' fuzz/Cargo.toml)
  say "building ${#targets[@]} targets"
  cargo fuzz build --fuzz-dir fuzz
fi
failed=()
for target in "${targets[@]}"; do
  say "$target: $seconds s"
  mkdir -p "fuzz/corpus/$target"
  seeds=()
  [ ! -d "fuzz/seeds/$target" ] || seeds=("fuzz/seeds/$target")
  log=$BUILD/logs/fuzz-$target.log
  mkdir -p "$BUILD/logs"
  # Leaks are not looked for: the leak checker needs ptrace, which containers refuse, and takes what threads that
  # end a little later hold for lost.
  if ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" cargo fuzz run --fuzz-dir fuzz "$target" "fuzz/corpus/$target" "${seeds[@]}" -- \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -detect_leaks=0 -print_final_stats=1 >"$log" 2>&1; then
    grep -E 'number_of_executed_units|new_units_added' "$log" | sed 's/^/  /'
  else
    failed+=("$target")
    tail -n 40 "$log"
  fi
done
if [ ${#failed[@]} -gt 0 ]; then die "findings in: ${failed[*]}" "inputs are in fuzz/artifacts, logs in .build/logs"; fi
printf '\nno findings in %d targets\n' "${#targets[@]}"
