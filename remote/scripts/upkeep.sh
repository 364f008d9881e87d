# Short commands on a host: about spools, and about what a turn needs. Their answers are read by the worker.

# refuse CODE DETAIL
refuse() {
    printf '%s %s' "$1" "$2" >&2
    exit 90
}

# read_session_files SPOOL PATTERN...: what was added to the agent's session files since the turn began.
read_session_files() {
    spool=$1
    shift
    [ -d "$spool" ] || refuse spool_missing "$spool"
    session_root=
    if [ -e "$spool/session_root" ]; then IFS= read -r session_root <"$spool/session_root"; fi
    [ -d "$session_root" ] && cd -- "$session_root" || return 0
    for file in $*; do
        if [ -f "$file" ]; then read_appended "$file"; fi
    done
}

read_appended() {
    from=0
    while read -r size name; do
        if [ "$name" = "$1" ]; then from=$size; fi
    done <"$spool/session_sizes"
    tail -c "+$((from + 1))" -- "$1"
    echo
}

# read_stderr_tail SPOOL BYTES
read_stderr_tail() {
    [ -d "$1" ] || refuse spool_missing "$1"
    if [ -e "$1/err" ]; then tail -c "$2" "$1/err"; fi
}

# free_kibibytes PATH: of its file system, or of the one it would be made on.
free_kibibytes() {
    path=$1
    while [ ! -e "$path" ] && [ "$path" ]; do path=${path%/*}; done
    table=$(LC_ALL=C df -Pk "${path:-/}") || return
    # Seven words of heading, then: device, total, used, available.
    set -- $table
    shift 7
    echo "$4"
}

# list_spools ROOT: one line for each: id, alive or dead, ended or open, age in seconds or "-".
list_spools() {
    now=$(date +%s)
    for spool in "$1"/*/; do
        spool=${spool%/}
        load_turn || continue
        age=-
        if get started && [ "$value" ]; then age=$((now - value)); fi
        life=dead
        if running supervisor; then life=alive; fi
        state=open
        if ended; then state=ended; fi
        echo "${spool##*/} $life $state $age"
    done
}

# remove_spool ROOT ID: with the drafts of starts that were cut off. A supervisor needs a moment to sign, after its
# start, and to put down the end, after its marker.
remove_spool() {
    spool=$1/$2
    if load_turn; then
        waited=0
        while { held || starting; } && [ "$waited" -lt 5 ]; do pause; done
        if held; then refuse spool_in_use "$spool"; fi
    fi
    rm -rf "$spool" "$1/.$2".??????
}

# held: not ended, and somebody is there to end it.
held() {
    ended && return 1
    running supervisor || running watcher
}

starting() {
    ended && return 1
    get supervisor
    [ -z "$value" ]
}

# probe SECONDS ARGV...: run a foreign program, and kill it with its group after so long.
probe() {
    seconds=$1
    shift
    setsid "$@" &
    probed=$!
    setsid sh -c 'sleep "$1"; kill -KILL "-$2"' guard "$seconds" "$probed" >/dev/null 2>&1 4>&- &
    guard=$!
    wait "$probed"
    code=$?
    # A program may be over before its guard leads a group.
    for left in "-$probed" "-$guard" "$guard"; do kill -KILL "$left" 2>/dev/null; done
    return "$code"
}
