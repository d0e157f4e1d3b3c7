#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check-vm.sh
# The suites on pure cgroup v2 under systemd, as root and as an ordinary user:
# boots Debian 12 with its own kernel in QEMU, without KVM. The system is made
# by fresh-root.sh, hutch is built in it at the host's speed, and an image of it
# is booted; tests/vm/guest.sh is what runs there, and says its results on the
# second serial line. What is tested is the last commit. Needs root. The last
# line is the total.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/fresh-root.sh

clone=/usr/src/hutch
image_size=3G
limit_seconds=2400 # only for a machine that hangs
results=build-logs/vm

# The kernel's fastest ways to copy and to clear pages on real processors, rep
# movsb and its kin, are the slowest here: they are emulated byte by byte.
# Without them (rep_good, erms, fsrm) the guest is three times as fast.
cpu=max,-erms,-fsrm,-smap,-smep
kernel_arguments='root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off
    clearcpuid=112,297,580 systemd.unified_cgroup_hierarchy=1'

# inside COMMAND...: in the new system, at the host's speed
inside() {
    contained tools/enter-root.sh "$root" "$@"
}

furnish() {
    copy_commit $clone
    inside $clone/tools/packages.sh build run vm-root
    inside apt-get clean
    inside bash -c "cd $clone && meson setup build --werror -Dtests=enabled && ninja -C build"
    inside useradd --create-home --shell /bin/bash tester
    cp tests/vm/hutch-tests.service "$root/etc/systemd/system/"
    inside systemctl enable hutch-tests.service /usr/share/systemd/tmp.mount
    echo hutch-vm >"$root/etc/hostname"
    rm -f "$root"/etc/systemd/system/timers.target.wants/* # nothing runs beside the tests
    mv "$root"/boot/vmlinuz-* "$work/kernel"
    mv "$root"/boot/initrd.img-* "$work/initrd"
}

boot() {
    contained setpriv --pdeathsig KILL timeout -s KILL $limit_seconds setpriv --pdeathsig KILL \
        qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=1024 -cpu $cpu -smp 2 -m 3072 \
        -nodefaults -display none -no-reboot \
        -kernel "$work/kernel" -initrd "$work/initrd" -append "$(xargs <<<"$kernel_arguments")" \
        -drive "file=$work/image,if=virtio,format=raw,cache=unsafe" \
        -serial "file:$work/console" -serial "file:$work/results"
}

# One TAP file a suite, SUITE.NAME.tap, out of what the guest said. A suite that
# it never came to leaves an empty file, which counts as a failure.
sort_results() {
    rm -rf $results
    mkdir -p $results
    sed -n 's/^ *suite \([a-z]*\.[^ ]*\) .*/\1/p' tests/vm/guest.sh |
        while read -r name; do : >"$results/$name.tap"; done
    tr -d '\r' <"$work/results" | awk -v folder=$results '
        $1 == "@begin" { name = $2; failed = 0; begun[name] = 1; next }
        /^not ok/ { failed = 1 }
        $1 == "@end" {
            print "vm | " $2 ": status " $3 ", " $4 " s"
            # A status that no failed case stands for: it crashed, or took too long.
            if ($3 != 0 && !failed) print "not ok - ended with status " $3 >(folder "/" name ".tap")
            ended[name] = 1; name = ""; next
        }
        name != "" { print >(folder "/" name ".tap") }
        name == "" { print "vm | " $0 }
        END { for (n in begun) if (!ended[n]) print "not ok - has no end" >(folder "/" n ".tap") }'
    cp "$work/console" $results/console.log
}

[ "$(dpkg --print-architecture)" = amd64 ] || {
    echo "check-vm boots an amd64 machine, this is another"
    exit 1
}
fresh_root check-vm
tools/packages.sh vm
step=$SECONDS
furnish
mke2fs -q -t ext4 -O ^has_journal -d "$root" "$work/image" $image_size
echo "the machine is ready to boot ($((SECONDS - step)) s)"
step=$SECONDS
: >"$work/results"
boot || echo "the machine ended with status $? or was ended after $limit_seconds s"
sort_results
echo "the machine ran for $((SECONDS - step)) s"
/usr/bin/python3 tools/totals.py tests/skips.txt /dev/null $results/*.tap
