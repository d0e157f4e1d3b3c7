#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check.sh         every test of the project, in three builds:
#   build-check   gcc, warnings are errors; all suites
#   build-asan    gcc with ASan and UBSan; the unit and faults suites
#   build-fuzz    clang with ASan, UBSan and libFuzzer, warnings are errors; the
#                 fuzz suite, for seconds
# check.sh faults  the faults suite alone, more calls, 200 kills of cold and of warm cells
# check.sh fuzz    the fuzz suite alone, seconds more of each target
# check.sh user    the suite long: conformance, sessions and the escape suite as an ordinary user,
#                 bad interpreters, hosts short of something, installations, the javascript
#                 runner's programs in a parked node; and the escape suite with sanitizers
# HUTCH_FRESH=1    of the first form what a machine can lack: both compilers, the build of one and
#                 what it needs to run; left out is what says the same on every machine
#                 (check-fresh.sh)
# The last line is the total; the exit status says whether all is well.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

unset CC CFLAGS CPPFLAGS LDFLAGS PYTHONHOME PYTHONPATH VIRTUAL_ENV
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
export ASAN_OPTIONS=halt_on_error=1:abort_on_error=1
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1

logs=build-logs
rm -rf $logs build-check/junit build-{check,asan,fuzz}/meson-logs/testlog.json
mkdir -p $logs

# step NAME COMMAND...: one line of TAP in steps.tap; the output, when it fails
step() {
    local name=$1 log=$logs/${1// /-}.log start=$SECONDS verdict=ok
    shift
    if ! "$@" >"$log" 2>&1 </dev/null; then
        verdict='not ok'
        tail -n 60 "$log"
    fi
    echo "$verdict - $name" >>$logs/steps.tap
    echo "$verdict - $name ($((SECONDS - start)) s)"
    [ "$verdict" = ok ]
}

# build DIR OPTION...: anew where the folder that is there is of no use
build() {
    local dir=$1
    shift
    if ! [ -e "$dir/build.ninja" ] || ! meson setup --reconfigure "$dir" "$@"; then
        rm -rf "$dir"
        meson setup "$dir" "$@" || return
    fi
    ninja -C "$dir"
}

tests() {
    local dir=$1 start=$SECONDS
    shift
    meson test -C "$dir" --no-rebuild --print-errorlogs "$@" </dev/null
    echo "tests of $dir: $((SECONDS - start)) s"
}

suites=()
with_gcc() {
    step 'build with gcc' build build-check --werror -Dtests=enabled && {
        tests build-check "$@"
        suites+=(build-check)
    }
}

with_sanitizers() {
    step 'build with sanitizers' build build-asan -Dtests=enabled -Db_sanitize=address,undefined && {
        tests build-asan "$@"
        suites+=(build-asan)
    }
}

fuzz_options=(--werror -Dtests=enabled -Dfuzzers=true '-Db_sanitize=address,undefined'
    -Db_lundef=false)
fuzz() {
    CC=clang-14 step 'build with clang' build build-fuzz "${fuzz_options[@]}" && {
        tests build-fuzz --suite fuzz
        suites+=(build-fuzz)
    }
}

# Whether clang and what fuzzing needs are there.
one_fuzz_target() {
    meson setup build-fuzz "${fuzz_options[@]}" && ninja -C build-fuzz tests/fuzz/fuzz_utf8
}

faults() {
    with_gcc --suite faults --timeout-multiplier 10
}

if ! tools/packages.sh build run check; then
    echo 'not ok - install packages' >>$logs/steps.tap
elif [ "${1:-}" = faults ]; then
    HUTCH_FAULTS=all faults
elif [ "${1:-}" = fuzz ]; then
    HUTCH_FUZZ_SECONDS=5 fuzz
elif [ "${1:-}" = user ]; then
    with_gcc --suite long
    with_sanitizers --suite escape
elif [ -n "${HUTCH_FRESH:-}" ]; then
    with_gcc --suite unit --suite house --suite fresh
    CC=clang-14 step 'build a fuzz target with clang' one_fuzz_target
else
    with_gcc --no-suite long
    with_sanitizers --suite unit --suite faults
    fuzz
fi
/usr/bin/python3 tools/totals.py tests/skips.txt $logs/steps.tap "${suites[@]}"
