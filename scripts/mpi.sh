#!/usr/bin/env bash
# Builds what the tests of MPI run, with Open MPI and, where it is installed, with MPICH, into .build/mpi/NAME: the C
# library, libstead_mpi, libstead_mpi_io, the suite of the fabric, and the programs of the tests. Called by scripts/test.sh.
#
#   scripts/mpi.sh [openmpi|mpich]...
#   PROFILE=release scripts/mpi.sh openmpi   for measuring
#   COMMANDS=all scripts/mpi.sh              the command with each of them
source "$(dirname "$0")/lib.sh"
profile=${PROFILE:-dev}
made=$profile
[ "$profile" != dev ] || made=debug

# Together with what tests, or benchmarks, have built already: alone, each would have what it needs built anew with
# features of its own.
if [ "$profile" = dev ]; then built=("${WORKSPACE[@]}"); else built=(-p stead-cli -p stead-bench -p stead-capi); fi
cargo build --profile "$profile" --locked "${built[@]}"

# programs MPICC FOLDER FIRST: what is in C, C++ and Fortran, with what FOLDER has of libstead and libstead_mpi; FIRST is empty, or has it
# checked by sanitizers, too.
programs() {
  local mpicc=$1 out=$2 first=$3
  mpi_io "$mpicc" "$out" -Werror
  # Programs look for them by their names with a version.
  for library in libstead libstead_mpi libstead_mpi_io; do
    ln -sf $library.so "$out/$(readelf -d "$out/$library.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')"
  done
  cc=("$mpicc" -std=c11 -Wall -Wextra -Werror -Iinclude)
  # Not the C++ of MPI itself, which is no longer in the standard and full of warnings.
  cxx=("${mpicc/mpicc/mpicxx}" -std=c++17 -Wall -Wextra -Werror -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -Iinclude)
  libraries=(-L"$out" -lstead_mpi -lstead -lpthread "-Wl,-rpath,$out")
  for program in ranks shared asks coupled; do
    "${cc[@]}" -O1 tests/mpi/$program.c -o "$out/$program" "${libraries[@]}"
  done
  "${cxx[@]}" tests/mpi/tipsy.cpp -o "$out/tipsy" "${libraries[@]}"
  "${cxx[@]}" tests/mpi/coupled.cpp -o "$out/coupled++" "${libraries[@]}"
  for example in read run; do
    "${cc[@]}" examples/mpi/$example.c -o "$out/$example" "${libraries[@]}"
    "${cxx[@]}" examples/mpi/$example.cpp -o "$out/$example++" "${libraries[@]}"
  done
  "${cc[@]}" -O1 examples/workflows/laplace/laplace.c -o "$out/laplace" "${libraries[@]}"
  "${cc[@]}" examples/mpi/read_ex.c -o "$out/read_ex" "-L$out" -lstead_mpi_io "${libraries[@]}"
  "${cxx[@]}" examples/mpi/read_ex.cpp -o "$out/read_ex++" "-L$out" -lstead_mpi_io "${libraries[@]}"
  "${cc[@]}" -O1 -rdynamic tests/mpi/asking.c -o "$out/asking" "-L$out" -lstead_mpi_io "${libraries[@]}" -lm
  "${cc[@]}" -fPIC -shared tests/mpi/tool.c -o "$out/libtool.so"
  # What it knows of datatypes, without the rest.
  "${cc[@]}" -O1 -g1 tests/mpi/types.c crates/mpi-capi/c/{types,views,errors}.c -o "$out/types" "${libraries[@]}"
  # Fortran is nothing that all who have an MPI have.
  fortran=${mpicc/mpicc/mpifort}
  if "$fortran" --version >/dev/null 2>&1; then
    "$fortran" -std=f2018 -Wall -Wextra -Werror -J"$out" include/stead_mpi_io.f90 examples/mpi/read_ex.f90 -o "$out/read_ex-fortran" \
      "-L$out" -lstead_mpi_io "${libraries[@]}"
    "$fortran" -std=f2018 -Wall -Wextra -Werror -J"$out" include/stead_mpi_io.f90 include/stead_mpi_io_f08.f90 \
      examples/mpi/read_ex_f08.f90 -o "$out/read_ex-f08" "-L$out" -lstead_mpi_io "${libraries[@]}"
    # Not all that it calls has an interface in the module of MPI.
    "$fortran" -std=gnu -no-pie -Wall -Werror -rdynamic -J"$out" include/stead_mpi_io.f90 tests/mpi/asking.f90 -o "$out/asking-fortran" \
      "-L$out" -lstead_mpi_io "${libraries[@]}"
    streams=(include/stead_stream.f90 include/stead_stream_told.f90 include/stead_mpi_stream.f90)
    "$fortran" -std=f2018 -Wall -Wextra -Werror -J"$out" "${streams[@]}" tests/mpi/coupled.f90 -o "$out/coupled-fortran" "${libraries[@]}"
    "$fortran" -std=f2018 -Wall -Wextra -Werror -J"$out" "${streams[@]}" include/stead_mpi_stream_f08.f90 \
      examples/mpi/coupled_simulation.f90 -o "$out/coupled_simulation-f08" "${libraries[@]}"
  else
    say "no Fortran for $mpicc here"
  fi
  # The faces under sanitizers: one MPI is enough for that, too.
  if [ -n "$first" ]; then
    checks=(-g1 -fsanitize=address,undefined -fno-sanitize-recover=all)
    "${cc[@]}" "${checks[@]}" tests/mpi/ranks.c -o "$out/ranks-checked" "${libraries[@]}"
    "${cxx[@]}" "${checks[@]}" tests/mpi/tipsy.cpp -o "$out/tipsy-checked" "${libraries[@]}"
    # What stands before MPI does so in the program itself, too.
    "${cc[@]}" "${checks[@]}" -rdynamic tests/mpi/asking.c crates/mpi-capi/c/*.c -o "$out/asking-checked" "${libraries[@]}" -ldl -lm
    "${cc[@]}" "${checks[@]}" tests/mpi/types.c crates/mpi-capi/c/{types,views,errors}.c -o "$out/types-checked" "${libraries[@]}"
  fi
}

compiled=()
# Nothing of it goes on when this ends.
trap wait EXIT
# `mpicc.NAME` where the system has both, `mpicc` where it has one.
for name in "${@:-openmpi mpich}"; do for name in $name; do
  mpicc=mpicc.$name
  command -v "$mpicc" >/dev/null || mpicc=mpicc
  "$mpicc" -show 2>/dev/null | grep -qi "${name/openmpi/open}" || { say "no $name here"; continue; }
  out=$BUILD/mpi/$name
  mkdir -p "$out"
  say "building with $mpicc into $out"
  if [ "$profile" = dev ]; then what=("${WORKSPACE[@]}"); else what=(-p stead-mpi-capi -p stead-mpi); fi
  what+=(--lib --bin conform)
  features=stead-mpi-capi/conformance
  # One MPI is enough for the command: what it calls is tested with both. `make test-all` has it of each, as daemons are a pool over either.
  command='' first=''
  [ "$name $profile" != "openmpi dev" ] || command=stead-mpi first=yes
  [ "${COMMANDS:-}" != all ] || command=stead-mpi
  [ -z "$command" ] || what+=(--bin "$command") features+=,stead-cli/mpi
  [ -z "$command" ] || [ "$profile" = dev ] || what+=(-p stead-cli)
  [ -z "$first" ] || what+=(--bin mpi-read)
  # What is linked with one MPI must not be taken for the other: a profile of its own, which is otherwise the same, has the
  # bindings of this one, and all that uses them, kept apart from those of the other, and nothing else.
  other=()
  [ "$name" = openmpi ] || other=(--config "profile.$profile.package.mpi-sys.codegen-units=17")
  MPICC=$mpicc cargo build --profile "$profile" --locked "${what[@]}" --features "$features" "${other[@]}"
  cp -f "$TARGET/$made/libstead_capi.so" "$out/libstead.so"
  cp -f "$TARGET/$made/libstead_mpi_capi.so" "$out/libstead_mpi.so"
  cp -f "$TARGET/$made/conform" "$out/conform"
  if [ -n "$command" ]; then
    cp -f "$TARGET/$made/$command" "$out/stead"
  elif [ "$name $profile" = "mpich dev" ]; then
    # One that is there is of an older build.
    rm -f "$out/stead"
  fi
  [ -z "$first" ] || cp -f "$TARGET/$made/mpi-read" "$out/read-rust"
  # Beside what cargo does for the next one.
  programs "$mpicc" "$out" "$first" &
  compiled+=($!)
done; done
failed=0
for one in "${compiled[@]}"; do wait "$one" || failed=1; done
exit $failed
