#!/usr/bin/env bash
# Runs the tests of the vectors on an emulated processor with AVX-512, which few machines have. Called by `make test-all`.
#
#   scripts/avx512.sh [CRATE...]    simd, kernel and format if none is named; of the latter two, what uses vectors and ends
#                                  within minutes
#
# Bochs emulates a whole computer: it boots a Debian kernel from a CD image, of which the first program runs the tests,
# linked statically, and powers off. What they print comes out of the serial line. A few minutes, most of them the
# kernel's. Needs bochs, bochs-term, bochsbios, vgabios, isolinux, syslinux-common, xorriso, busybox-static and cpio
# (scripts/setup.sh all) and gets the kernel's package from the distribution's mirror.
source "$(dirname "$0")/lib.sh"
crates=("$@")
[ ${#crates[@]} -gt 0 ] || crates=(simd kernel format)
there=$BUILD/avx512
mkdir -p "$there"

for tool in bochs xorriso cpio busybox script; do
  command -v $tool >/dev/null || die "$tool is missing" "run as root: scripts/setup.sh all"
done

# --- The kernel -------------------------------------------------------------------------------------
if [ ! -s "$there/vmlinuz" ]; then
  package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n1)
  [ -n "$package" ] || die "no package linux-image-cloud-amd64 is known" "run as root: apt-get update"
  (cd "$there" && rm -f ./*.deb && apt-get download -q "$package" && dpkg-deb -x ./*.deb unpacked)
  mv "$there"/unpacked/boot/vmlinuz-* "$there/vmlinuz"
  rm -rf "$there/unpacked" "$there"/*.deb
fi

# --- The tests, and the program that runs them ------------------------------------------------------
root=$there/root
rm -rf "$root" "$there/iso"
mkdir -p "$root/bin" "$root/proc" "$root/tmp" "$root/dev" "$there/iso"
cp "$(command -v busybox)" "$root/bin/busybox"
for crate in "${crates[@]}"; do
  binary=$(RUSTFLAGS='-C target-feature=+crt-static' ${CARGO:-cargo} test --locked -p "stead-$crate" --lib --no-run \
    --target x86_64-unknown-linux-gnu --message-format json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n1)
  strip -o "$root/bin/$crate" "$binary"
done
cat >"$root/init" <<EOF
#!/bin/busybox sh
export PROPTEST_CASES=${CASES:-64} RUST_TEST_THREADS=1
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
cd /tmp
for crate in ${crates[*]}; do
  case \$crate in
    kernel) which="bytes:: exact:: extremes:: gram::tile hist:: kmeans::assign kmeans::sums normalize::" ;;
    format) which="delimited::" ;;
    *) which= ;;
  esac
  if /bin/\$crate \$which; then
    echo "passed: \$crate"
  else
    echo "FAILED: \$crate"
  fi
done
echo "vectors: \$(/bin/busybox grep -c avx512vl /proc/cpuinfo)"
# What stands in the buffer of the serial line would be lost.
/bin/busybox sleep 5
/bin/busybox poweroff -f
EOF
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet --owner 0:0) | gzip -1 >"$there/iso/initrd"

# --- The CD -----------------------------------------------------------------------------------------
cp "$there/vmlinuz" /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$there/iso"
# What the processor says of the size of its registers in compact form is not what the kernel expects of it, which
# would then do without AVX.
cat >"$there/iso/isolinux.cfg" <<'EOF'
default tests
label tests
  kernel vmlinuz
  append initrd=initrd console=ttyS0 loglevel=4 mitigations=off no_timer_check tsc=reliable panic=-1 clearcpuid=xsavec,xsaves
EOF
xorriso -as mkisofs -quiet -o "$there/cd.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
  -boot-info-table "$there/iso"
cat >"$there/bochsrc" <<EOF
megs: 512
cpu: model=corei7_skylake_x, count=1, ips=200000000, reset_on_triple_fault=0
clock: sync=none
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=$there/cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$there/serial.log
display_library: term
log: $there/bochs.log
panic: action=fatal
# Its thread for sound overflows a buffer of its own.
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
plugin_ctrl: speaker=0
EOF
# Debian's Bochs is built with its debugger, which waits for a word.
echo c >"$there/rc"

# --- Run --------------------------------------------------------------------------------------------
: >"$there/serial.log"
say "booting the emulated computer (log: .build/avx512/serial.log)"
# Without a terminal of some size it does not start. It ends with an error when it is switched off, too.
TERM=vt100 timeout "${LIMIT:-1800}" script -qec "stty rows 50 cols 132; bochs -f $there/bochsrc -rc $there/rc" /dev/null \
  >"$there/screen.log" 2>&1 </dev/null || true
tr -d '\r' <"$there/serial.log"
grep -q '^vectors: 1' "$there/serial.log" || die "the emulated processor did not come up with AVX-512"
for crate in "${crates[@]}"; do
  tr -d '\r' <"$there/serial.log" | grep -qx "passed: $crate" || die "the tests of $crate did not pass with AVX-512"
done
