#!/usr/bin/env bash
# Sets up what the build and the tests need on a Debian or Ubuntu machine with a Rust toolchain and Python.
#
#   scripts/setup.sh demo   what `make demo` needs: C compiler, Python environment
#   scripts/setup.sh test   and what `make test` needs: rustfmt, clippy, Python packages, and for the C and C++
#                           faces g++, cmake, pkg-config, valgrind; Open MPI, MPICH, libclang, iproute2, stress-ng, e2fsprogs, Slurm
#   scripts/setup.sh tools  of that, what compiles: all but the Python packages
#   scripts/setup.sh bench  what benchmarks need: what `make demo` does, fio, rclone, rsync and redis-server
#   scripts/setup.sh all    and what `make test-all` needs: emulators of processors with NEON and AVX-512
#
# Safe to run again: what is there is left alone. System packages are installed only as root; other
# users are told the command. All else goes to .build inside the clone.
source "$(dirname "$0")/lib.sh"
what=${1:-test}
all=0 packages=1
case $what in
  all) what=test all=1 ;;
  tools) what=test packages=0 ;;
esac

# --- Rust -------------------------------------------------------------------------------------------
need_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
command -v cargo >/dev/null || die "no Rust toolchain: cargo is not on the PATH" \
  "install rustup (Debian 13, Ubuntu 24.04: apt-get install rustup), then: rustup toolchain install stable"
have_rust=$(cargo --version | cut -d' ' -f2)
if [ "$(printf '%s\n' "$need_rust" "${have_rust%%-*}" | sort -V | head -n1)" != "$need_rust" ]; then
  die "cargo is version $have_rust, and stead needs $need_rust or newer" "run: rustup update stable"
fi
if [ "$what" = test ]; then
  for component in rustfmt clippy; do
    tool=cargo-${component#rust}
    if ! cargo "${tool#cargo-}" --version >/dev/null 2>&1; then
      rustup component add "$component" >/dev/null 2>&1 || die "$tool is missing" \
        "run: rustup component add $component"
    fi
  done
fi

# With it the code for ARM is compiled too; without rustup that is left out, and counted.
arm=aarch64-unknown-linux-gnu
if [ "$what" = test ] && command -v rustup >/dev/null && ! rustup target list --installed 2>/dev/null | grep -qx $arm; then
  rustup target add $arm >/dev/null 2>&1 || true
fi

# --- System packages --------------------------------------------------------------------------------
command -v python3 >/dev/null || MISSING_PYTHON=1
missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v git >/dev/null || missing+=(git)
if [ "$what" = test ]; then
  # The tests of the C and C++ faces compile programs and look for errors of memory.
  command -v g++ >/dev/null || missing+=(g++)
  command -v cmake >/dev/null || missing+=(cmake)
  command -v make >/dev/null || missing+=(make)
  command -v pkg-config >/dev/null || missing+=(pkg-config)
  command -v valgrind >/dev/null || missing+=(valgrind)
  # The fabric over MPI and the lab of several hosts.
  command -v mpicc >/dev/null && command -v mpirun >/dev/null || missing+=(openmpi-bin libopenmpi-dev)
  command -v mpicc.mpich >/dev/null || missing+=(mpich libmpich-dev)
  command -v gfortran >/dev/null || missing+=(gfortran)
  ls /usr/lib/llvm-*/lib/libclang.so* >/dev/null 2>&1 || missing+=(libclang-dev)
  # The disk that fails, where it can be made.
  command -v mkfs.ext4 >/dev/null || [ -x /sbin/mkfs.ext4 ] || missing+=(e2fsprogs)
  # File systems whose files share blocks.
  command -v mkfs.xfs >/dev/null || [ -x /sbin/mkfs.xfs ] || missing+=(xfsprogs)
  command -v mkfs.btrfs >/dev/null || [ -x /sbin/mkfs.btrfs ] || missing+=(btrfs-progs)
  command -v losetup >/dev/null || [ -x /sbin/losetup ] || missing+=(mount)
  command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
  command -v stress-ng >/dev/null || missing+=(stress-ng)
  # Ranks that Slurm starts.
  command -v slurmctld >/dev/null || [ -x /usr/sbin/slurmctld ] || missing+=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins)
fi
[ "$what" != bench ] || command -v fio >/dev/null || missing+=(fio)
[ "$what" != bench ] || command -v rclone >/dev/null || missing+=(rclone)
[ "$what" != bench ] || command -v rsync >/dev/null || missing+=(rsync)
[ "$what" != bench ] || command -v redis-server >/dev/null || missing+=(redis-server)
if [ $all = 1 ] && [ "$(uname -m)" = x86_64 ]; then
  command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
  command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
  command -v bochs >/dev/null || missing+=(bochs bochs-term bochsbios vgabios)
  [ -e /usr/lib/ISOLINUX/isolinux.bin ] || missing+=(isolinux syslinux-common)
  command -v xorriso >/dev/null || missing+=(xorriso)
  command -v busybox >/dev/null || missing+=(busybox-static)
  command -v cpio >/dev/null || missing+=(cpio)
fi
[ -z "${MISSING_PYTHON:-}" ] || missing+=(python3)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && $install || die "could not install ${missing[*]}" "run: apt-get update && $install"
  else
    die "system packages are missing: ${missing[*]}" "run as root: apt-get update && $install"
  fi
fi
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die \
  "python3 is $(python3 --version | cut -d' ' -f2), and the tests need 3.10 or newer" \
  "put a newer python3 first on the PATH"

[ $packages = 1 ] || exit 0

# --- Python environment -----------------------------------------------------------------------------
mkdir -p "$BUILD"
# A stamp names what the environment was made of; a moved clone or another Python makes a new one.
base="$(python3 -c 'import sys; print(sys.version, sys.base_prefix)') $ROOT"
if [ "$(cat "$VENV/.base" 2>/dev/null)" != "$base" ] || ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
  say "making a Python environment in .build/venv"
  rm -rf "$VENV"
  python3 -m venv "$VENV"
  printf '%s\n' "$base" >"$VENV/.base"
fi
if [ "$what" = test ]; then
  wanted=$(sha256sum tests/requirements.txt)
  if [ "$(cat "$VENV/.requirements" 2>/dev/null)" != "$wanted" ]; then
    say "installing the Python packages of the tests"
    "$PYTHON" -m pip install --quiet --requirement tests/requirements.txt
    printf '%s\n' "$wanted" >"$VENV/.requirements"
  fi
fi

# --- Azure's blobs ----------------------------------------------------------------------------------
# A server that speaks as Azure does, for the tests of buckets: on machines that have Node.js, which it takes.
azurite=3.35.0
if [ "$what" = test ]; then
  if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    say "no node and npm here: the tests with a server of Azure are skipped"
  elif [ "$(cat "$BUILD/azurite/.version" 2>/dev/null)" != $azurite ]; then
    say "installing Azurite"
    rm -rf "$BUILD/azurite" && mkdir -p "$BUILD/azurite"
    echo '{"private": true}' >"$BUILD/azurite/package.json"
    if npm install --prefix "$BUILD/azurite" --no-audit --no-fund --omit=optional --ignore-scripts --silent "azurite@$azurite"; then
      echo $azurite >"$BUILD/azurite/.version"
    else
      say "could not install Azurite: the tests with a server of Azure are skipped"
      rm -rf "$BUILD/azurite"
    fi
  fi
fi
