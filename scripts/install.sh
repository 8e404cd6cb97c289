#!/usr/bin/env bash
# Builds and installs the command, the C and C++ libraries and headers, their pkg-config and CMake files, man pages
# and shell completions. Called by `make install PREFIX=/usr/local DESTDIR=`.
#
#   PREFIX    where it will be used
#   DESTDIR   what stands before that while packaging
#   LIBDIR, INCLUDEDIR   in place of PREFIX/lib and PREFIX/include
#   PROFILE   cargo's profile, `release` unless told otherwise
#   BUILT     folder with what was built already: nothing is built but with MPI=1
#   MPI       1: libstead_mpi and libstead_mpi_io, too, and a command whose ranks read together, all built with MPICC, which is
#             `mpicc` unless told otherwise; or a libstead_mpi.so that was built already, which has the other one beside it
#
# Needs a Rust toolchain and a C compiler, and no network once the crates are there (cargo fetch).
source "$(dirname "$0")/lib.sh"

PREFIX=${PREFIX:-/usr/local}
LIBDIR=${LIBDIR:-$PREFIX/lib}
INCLUDEDIR=${INCLUDEDIR:-$PREFIX/include}
DESTDIR=${DESTDIR:-}
PROFILE=${PROFILE:-release}
for dir in "$PREFIX" "$LIBDIR" "$INCLUDEDIR" ${DESTDIR:+"$DESTDIR"}; do
  case $dir in /*) ;; *) die "'$dir' is no absolute path" "write for example PREFIX=\$PWD/out" ;; esac
done

built=${BUILT:-$TARGET/$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")}
mpi=${MPI:-}
stead=$built/stead
case $mpi in
  '' | 0) mpi= ;;
  1)
    MPICC=${MPICC:-mpicc}
    command -v "$MPICC" >/dev/null || die "there is no '$MPICC', with which libstead_mpi is built" \
      "install an MPI, for example: apt-get install libopenmpi-dev libclang-dev" "or name its compiler: MPICC=..."
    # A target of its own: what is linked with one MPI must not be taken for another.
    mpi_target=$TARGET/$(basename "$MPICC")
    MPICC=$MPICC CARGO_TARGET_DIR=$mpi_target cargo build --profile "$PROFILE" --locked -p stead-mpi-capi --features link
    MPICC=$MPICC CARGO_TARGET_DIR=$mpi_target cargo build --profile "$PROFILE" --locked -p stead-cli --features mpi --bin stead-mpi
    mpi_built=$mpi_target/$([ "$PROFILE" = dev ] && echo debug || echo "$PROFILE")
    mpi=$mpi_built/libstead_mpi_capi.so
    stead=$mpi_built/stead-mpi
    ;;
  *)
    io=${mpi%.so}_io.so
    for library in "$mpi" "$io"; do [ -f "$library" ] || die "there is no library '$library'" "MPI=1 builds it"; done
    ;;
esac
[ -n "${BUILT:-}" ] || cargo build --profile "$PROFILE" --locked -p stead-cli -p stead-capi

version=$VERSION series=$SERIES
IFS=. read -r major minor _ <<<"$version"

# put MODE FILE DESTINATION
put() { install -D -m "$1" "$2" "$DESTDIR$3"; }

# fill TEMPLATE DESTINATION
fill() {
  mkdir -p "$(dirname "$DESTDIR$2")"
  sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@LIBDIR@|$LIBDIR|g" -e "s|@INCLUDEDIR@|$INCLUDEDIR|g" \
    -e "s|@VERSION@|$version|g" -e "s|@SERIES@|$series|g" -e "s|@MAJOR@|$major|g" -e "s|@MINOR@|$minor|g" \
    -e "s|@INCLUDE_FROM_HERE@|$(realpath -m --relative-to="$LIBDIR/cmake/stead" "$INCLUDEDIR")|g" \
    "$1" >"$DESTDIR$2"
  chmod 644 "$DESTDIR$2"
}

say "installing stead $version into $DESTDIR$PREFIX"
put 755 "$stead" "$PREFIX/bin/stead"
# The daemon is the same program under another name.
ln -sf stead "$DESTDIR$PREFIX/bin/steadd"
fill scripts/package/steadd.service.in "$PREFIX/lib/systemd/system/steadd.service"
# Managers of users look here below a home, too, where PREFIX is ~/.local, and not in PREFIX/lib.
fill scripts/package/steadd.user.service.in "$PREFIX/share/systemd/user/steadd.service"
# shared FILE NAME: with the names by which programs and compilers look for it
shared() {
  put 755 "$1" "$LIBDIR/$2.so.$version"
  ln -sf "$2.so.$version" "$DESTDIR$LIBDIR/$2.so.$series"
  ln -sf "$2.so.$series" "$DESTDIR$LIBDIR/$2.so"
}
shared "$built/libstead_capi.so" libstead
put 644 "$built/libstead_capi.a" "$LIBDIR/libstead.a"
for header in include/*.h include/*.hpp include/*.f90; do
  [[ $header = include/stead_mpi* ]] && [ -z "$mpi" ] || put 644 "$header" "$INCLUDEDIR/${header#include/}"
done
fill scripts/package/stead.pc.in "$LIBDIR/pkgconfig/stead.pc"
if [ -n "$mpi" ]; then
  shared "$mpi" libstead_mpi
  if [ -z "${io:-}" ]; then
    linked=$(mktemp -d)
    cp "$built/libstead_capi.so" "$linked/libstead.so"
    cp "$mpi" "$linked/libstead_mpi.so"
    mpi_io "$MPICC" "$linked"
    io=$linked/libstead_mpi_io.so
  fi
  shared "$io" libstead_mpi_io
  rm -rf "${linked:-}"
  for package in stead_mpi stead_mpi_io; do
    fill scripts/package/$package.pc.in "$LIBDIR/pkgconfig/$package.pc"
  done
fi
fill scripts/package/steadConfig.cmake.in "$LIBDIR/cmake/stead/steadConfig.cmake"
fill scripts/package/steadConfigVersion.cmake.in "$LIBDIR/cmake/stead/steadConfigVersion.cmake"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$built/stead" man "$scratch/man"
for page in "$scratch"/man/*.1; do put 644 "$page" "$PREFIX/share/man/man1/$(basename "$page")"; done
for shell in bash zsh fish; do "$built/stead" completions "$shell" >"$scratch/$shell"; done
put 644 "$scratch/bash" "$PREFIX/share/bash-completion/completions/stead"
put 644 "$scratch/zsh" "$PREFIX/share/zsh/site-functions/_stead"
put 644 "$scratch/fish" "$PREFIX/share/fish/vendor_completions.d/stead.fish"
for licence in LICENSE LICENSE-APACHE LICENSE-MIT; do put 644 "$licence" "$PREFIX/share/doc/stead/$licence"; done

if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && ldconfig -v 2>/dev/null | grep -q "^$LIBDIR:"; then ldconfig; fi
