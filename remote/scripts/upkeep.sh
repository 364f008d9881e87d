# Short commands on a host: about spools, and about what a turn needs. The worker parses their output.

# refuse CODE DETAIL
refuse() {
    printf '\n%s %s' "$1" "$(printf %s "$2" | tr '\n' ' ')" >&2
    exit 90
}

# read_stderr_tail ROOT ID BYTES
read_stderr_tail() {
    place "$1" "$2"
    [ -d "$spool" ] || refuse spool_missing "$spool"
    if [ -f "$spool/err" ]; then tail -c "$3" "$spool/err"; fi
}

# read_input ROOT ID: print what is counted; the beginning of another line may follow it.
read_input() {
    place "$1" "$2"
    [ -d "$spool" ] || refuse spool_missing "$spool"
    get said
    are_numbers $value && [ -f "$spool/prompt" ] || refuse spool_missing "$spool/prompt"
    head -c "${value#* }" "$spool/prompt"
}

# free_kibibytes PATH: of its file system, or of the one that it would be created on.
free_kibibytes() {
    place "$1" ""
    path=$root
    while [ ! -e "$path" ] && [ "$path" ]; do path=${path%/*}; done
    table=$(LC_ALL=C df -Pk "${path:-/}") || return
    # Seven words of heading, then: device, total, used, available.
    set -- $table
    shift 7
    echo "$4"
}

# check_spool_root ROOT: by trying, since permissions do not reveal a read-only or full disk. What is left if this
# is cut off looks like the draft of a start, and is removed like one.
check_spool_root() {
    place "$1" ""
    said=$(umask 077 && LC_ALL=C mkdir -p "$root" 2>&1) || refuse spool_unwritable "$said"
    said=$(LC_ALL=C mktemp -d "$root/.check.XXXXXX" 2>&1) || refuse spool_unwritable "$said"
    draft=$said
    trouble=
    said=$({ echo written >"$draft/events"; } 2>&1) || trouble="$root: $said"
    rm -rf "$draft"
    if [ "$trouble" ]; then refuse spool_unwritable "$trouble"; fi
}

# may_write PATH: print yes or no.
may_write() {
    if [ -w "$1" ]; then echo yes; else echo no; fi
}

# environment_names: print the names of the nonblank variables that agents find here. Their values stay here.
environment_names() {
    tr '\n\0' ' \n' <"/proc/$$/environ" | while IFS= read -r variable; do
        case $variable in
        *=?*) printf '%s\n' "${variable%%=*}" ;;
        esac
    done
}

# epoch: print the time in seconds.
epoch() {
    date +%s
}

# hold MARK: print which connection of sshd this shell belongs to, and stay until the input ends.
hold() {
    printf '\n%s %s\n' "$1" "$SSH_CONNECTION"
    read -r end
}

# list_spools ROOT: print a line for each: id, alive or dead, seconds since it was last followed or "-". Changes
# nothing: another machine may share the directory, and its turns are not those of a former boot.
list_spools() {
    now=$(date +%s)
    boot_id
    place "$1" ""
    for spool in "$root"/[A-Za-z0-9]*/; do
        spool=${spool%/}
        case ${spool##*/} in
        *[!A-Za-z0-9._-]*) continue ;;
        esac
        read_turn || continue
        life=dead
        if [ "$turn_boot" = "$boot" ] && running supervisor; then life=alive; fi
        age_of "$spool/heartbeat"
        echo "${spool##*/} $life $age"
    done
}

# age_of FILE: sets `age` to the seconds since it was written; "-" if this host cannot tell. Callers set `now`.
age_of() {
    age=-
    written=$(date -r "$1" +%s 2>/dev/null) && age=$((now - written))
}

# remove_drafts ROOT SECONDS: of starts that were cut off longer ago than that.
remove_drafts() {
    now=$(date +%s)
    place "$1" ""
    for draft in "$root"/.[A-Za-z0-9]*.??????/; do
        draft=${draft%/}
        [ -e "$draft/events" ] || continue
        age_of "$draft"
        case $age in
        *[!0-9]*) ;;
        *) if [ "$age" -gt "$2" ]; then rm -rf "$draft"; fi ;;
        esac
    done
}

# end_processes ROOT ID: terminate everything that a turn without a spool has left, and prevent its starts: one that
# waits for the word to go has nothing that a sweep finds. Refuses if one was faster.
end_processes() {
    place "$1" "$2"
    undo_drafts "$2"
    sweep || return
    [ ! -d "$spool" ] || refuse spool_exists "$spool"
}

# undo_drafts ID: either this rename succeeds or that of `claim`. What is left if this is cut off looks like a draft.
undo_drafts() {
    for draft in "$root/.$1".??????; do
        [ -d "$draft" ] || continue
        mv "$draft" "$draft.undone" 2>/dev/null && rm -rf "$draft.undone"
        [ ! -d "$draft" ] || refuse spool_unwritable "$draft"
    done
}

# remove_spool ROOT ID SEAL
remove_spool() {
    id=$2
    seal=$3
    place "$1" "$id"
    await_disuse
    rm -rf "$spool" "$root/.$id".??????
}

# probe SECONDS ARGV...: run an external program, and kill it with its group after SECONDS.
probe() {
    seconds=$1
    shift
    setsid "$@" &
    probed=$!
    setsid sh -c 'sleep "$1"; kill -KILL "-$2"' guard "$seconds" "$probed" >/dev/null 2>&1 4>&- &
    guard=$!
    wait "$probed"
    code=$?
    # A program may exit before its guard leads a group.
    for left in "-$probed" "-$guard" "$guard"; do kill -KILL "$left" 2>/dev/null; done
    return "$code"
}
