#!/bin/sh
# Process 1 of a bare machine: makes ROOT its root file system, runs COMMAND there, and notes in the file LEFT what the
# command has left behind. `pivot_root`, because the kernel gives no user namespace to what runs in a chroot.
# usage: enter.sh ROOT LEFT COMMAND...
set -eu
root=$1
exec 3>"$2"
shift 2

hostname fresh
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --bind /dev dev
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount --bind dev/pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p .before
pivot_root . .before
cd /
umount -l .before
rmdir .before

files() {
    for file in /tmp/* /tmp/.[!.]* /var/tmp/* /dev/shm/*; do
        [ ! -e "$file" ] || printf 'file %s\n' "$file"
    done
}
before=$(files)

code=0
"$@" 3>&- || code=$?

# Shells on hosts see their agent's end within a second or two.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for process in /proc/[0-9]*; do
        [ "$process" = /proc/1 ] || left="$left ${process#/proc/}"
    done
    [ -n "$left" ] || break
    sleep 1
done
for pid in $left; do
    [ ! -r "/proc/$pid/cmdline" ] || printf 'process %s\n' "$(tr '\0' ' ' <"/proc/$pid/cmdline")" >&3
done
files | while read -r file; do
    case "$before" in *"$file"*) ;; *) printf '%s\n' "$file" >&3 ;; esac
done
exit "$code"
