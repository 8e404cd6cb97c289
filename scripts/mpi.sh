#!/usr/bin/env bash
# Builds what the tests of MPI run, with Open MPI and, where it is installed, with MPICH, into .build/mpi/NAME: the C
# library, libstead_mpi, the suite of the fabric, and the program of the tests. Called by scripts/test.sh.
#
#   scripts/mpi.sh [openmpi|mpich]...
#   PROFILE=release scripts/mpi.sh openmpi   for measuring
source "$(dirname "$0")/lib.sh"
profile=${PROFILE:-dev}
made=$profile
[ "$profile" != dev ] || made=debug

# The C library, together with what tests, or benchmarks, have built already: alone it would be built anew.
if [ "$profile" = dev ]; then built=(--workspace); else built=(-p stead-cli -p stead-bench -p stead-capi); fi
cargo build --profile "$profile" --locked "${built[@]}"

# `mpicc.NAME` where the system has both, `mpicc` where it has one.
for name in "${@:-openmpi mpich}"; do for name in $name; do
  mpicc=mpicc.$name
  command -v "$mpicc" >/dev/null || mpicc=mpicc
  "$mpicc" -show 2>/dev/null | grep -qi "${name/openmpi/open}" || { say "no $name here"; continue; }
  out=$BUILD/mpi/$name
  mkdir -p "$out"
  say "building with $mpicc into $out"
  # What is linked with one MPI must not be taken for the other.
  target=$TARGET
  [ "$name" = openmpi ] || target=$TARGET/$name
  # All at once: alone, each would have what it needs built anew with features of its own.
  what=(-p stead-mpi-capi -p stead-mpi --lib --example conform)
  features=stead-mpi-capi/link,stead-mpi/conformance
  # One MPI is enough for the command: what it calls is tested with both.
  command=
  [ "$name $profile" != "openmpi dev" ] || command=stead-mpi
  [ -z "$command" ] || what+=(-p stead-cli --bin "$command") features+=,stead-cli/mpi
  MPICC=$mpicc CARGO_TARGET_DIR=$target cargo build --profile "$profile" --locked "${what[@]}" --features "$features"
  cp -f "$TARGET/$made/libstead_capi.so" "$out/libstead.so"
  cp -f "$target/$made/libstead_mpi_capi.so" "$out/libstead_mpi.so"
  # Programs look for them by their names with a version.
  for library in libstead libstead_mpi; do
    ln -sf $library.so "$out/$(readelf -d "$out/$library.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')"
  done
  cp -f "$target/$made/examples/conform" "$out/conform"
  [ -z "$command" ] || cp -f "$target/$made/$command" "$out/stead"
  for program in ranks shared; do
    "$mpicc" -std=c11 -Wall -Wextra -Werror -O1 -Iinclude tests/mpi/$program.c -o "$out/$program" \
      -L"$out" -lstead_mpi -lstead -lpthread "-Wl,-rpath,$out"
  done
  "$mpicc" -std=c11 -Wall -Wextra -Werror -Iinclude examples/mpi/read.c -o "$out/read" \
    -L"$out" -lstead_mpi -lstead "-Wl,-rpath,$out"
  # Not the C++ of MPI itself, which is no longer in the standard and full of warnings.
  "${mpicc/mpicc/mpicxx}" -std=c++17 -Wall -Wextra -Werror -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -Iinclude \
    examples/mpi/read.cpp -o "$out/read++" -L"$out" -lstead_mpi -lstead "-Wl,-rpath,$out"
  "${mpicc/mpicc/mpicxx}" -std=c++17 -Wall -Wextra -Werror -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -Iinclude \
    tests/mpi/tipsy.cpp -o "$out/tipsy" -L"$out" -lstead_mpi -lstead -lpthread "-Wl,-rpath,$out"
done; done
