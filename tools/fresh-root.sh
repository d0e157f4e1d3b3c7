# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# fresh-root.sh, to be sourced: a minimal Debian 12 in a folder, made by
# debootstrap from the mirror in this host's apt configuration. It is kept for the
# week in ${XDG_CACHE_HOME:-~/.cache}/hutch-check-fresh; what is done with it is
# thrown away when the caller ends.
#
#   fresh_root NAME    makes it; sets work (a private folder), root (the system in
#                      it) and label (what stands in front of contained lines)
#   copy_commit DIR    puts the last commit into a folder of root
#   use_cache=no       debootstrap in any case

suite=bookworm
use_cache=yes

# What runs in the background is in a pid namespace of its own, or dies with its
# parent: when its first process is killed, nothing of it is left, and no mount.
inner='' printer='' work=''
cleanup() {
    [ -z "$inner" ] || kill -KILL "$inner" 2>/dev/null || true
    [ -z "$printer" ] || wait "$printer" || true
    [ -z "$work" ] || rm -rf --one-file-system "$work"
}

# contained COMMAND...: prints every line behind a bar, so that no total of an
# inner test run is taken for ours
contained() {
    local status=0
    sed -u "s/^/$label | /" <"$work/output" &
    printer=$!
    "$@" >"$work/output" 2>&1 </dev/null &
    inner=$!
    wait "$inner" || status=$?
    inner=''
    wait "$printer" # the last writer is gone
    printer=''
    return $status
}

# debian_mirrors FILTER...: those of the host's apt configuration that match
debian_mirrors() {
    apt-get indextargets --format "\$(REPO_URI)" \
        'Created-By: Packages' 'Origin: Debian' 'Label: Debian' 'Component: main' "$@" | sort -u
}

find_mirror() {
    local mirror
    mirror=$(debian_mirrors "Codename: $suite" | head -n 1)
    [ -n "$mirror" ] || mirror=$(debian_mirrors | head -n 1)
    [ -n "$mirror" ] || return 1
    echo "$mirror"
}

# What the host needs to reach its mirror, the new system needs too.
carry_apt_configuration() {
    local settings=$root/etc/apt/apt.conf.d/00host
    apt-config dump | grep -E '^Acquire::(https?|ftp)::' >"$settings" || true
    sed -nE 's/.*(CaInfo|Proxy-Auto-Detect) "(\/[^"]+)";/\2/p' "$settings" |
        xargs -r cp -L --parents -t "$root"
    {
        echo "deb $mirror $suite main"
        apt-get indextargets --format "deb \$(REPO_URI) \$(RELEASE) main" 'Created-By: Packages' \
            'Origin: Debian' "Codename: $suite" 'Component: main'
    } | sort -u >"$root/etc/apt/sources.list"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}

make_base() {
    local proxy='' extra=git,make
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    [ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export http_proxy="${http_proxy:-$proxy}"
    [[ $mirror != https:* ]] || extra+=,ca-certificates
    echo "making a minimal $suite"
    # shellcheck disable=SC2016 # the inner shell expands it
    contained setpriv --pdeathsig KILL \
        unshare --mount --propagation private --pid --fork --kill-child --mount-proc bash -c \
        'debootstrap "$@" >"$0" 2>&1 || { tail -n 20 "$0"; exit 1; }' "$work/log" \
        --variant=minbase --include=$extra $suite "$root" "$mirror"
}

# The base system: out of the cache when it is of this week, else made.
unpack_base() {
    local cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hutch-check-fresh archive
    archive=$cache/$suite-$(dpkg --print-architecture)-$(date +%G-%V).tar
    if [ "$use_cache" = yes ] && [ -s "$archive" ]; then
        tar -C "$root" --numeric-owner -xpf "$archive"
        return
    fi
    make_base
    if [ "$use_cache" = yes ]; then
        mkdir -p "$cache"
        rm -f "$cache"/*.tar*
        tar -C "$root" --numeric-owner -cf "$archive.$$" .
        mv "$archive.$$" "$archive"
    fi
}

# copy_commit DIR: the last commit, as a repository of its own
copy_commit() {
    mkdir -p "$root$1"
    git -c safe.directory='*' archive HEAD | tar -C "$root$1" -x
    git -C "$root$1" init -q -b main
    git -C "$root$1" add -A
    [ -z "$(git -c safe.directory='*' status --porcelain)" ] ||
        echo "$label: only what is committed is tested, the work tree has more"
}

fresh_root() {
    label=$1
    if [ "$(id -u)" -ne 0 ]; then
        echo "$label needs root: debootstrap makes device files and mounts"
        exit 1
    fi
    tools/packages.sh fresh
    mirror=$(find_mirror) || {
        apt-get -q update
        mirror=$(find_mirror)
    }
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/hutch-$label.XXXXXX")
    trap cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    root=$work/root
    mkdir "$root"
    mkfifo "$work/output"
    unpack_base
    carry_apt_configuration
}
