# The files in which an agent records its sessions, and a turn's part of them.
#
# Callers set `session_root` (blank: its command does not determine it), `session_env` and `session_default`, which
# then do; to record, also `session_patterns` (blank: the agent keeps no such files) and `draft`.

# locate_sessions: sets `session_root`.
locate_sessions() {
    if [ -z "$session_root" ] && [ "$session_env" ]; then eval "session_root=\$$session_env"; fi
    session_root=${session_root:-$HOME/$session_default}
}

# record_sessions: the size of the agent's session files now, so that this turn's part can be identified later. wc
# fails for patterns that match nothing; the blank line after it shows whether there was space.
record_sessions() {
    [ "$session_patterns" ] || return 0
    locate_sessions
    printf '%s\n' "$session_root" >"$draft/session_root" || return
    {
        (cd -- "$session_root" && wc -c -- $session_patterns) 2>/dev/null
        echo
    } >"$draft/session_sizes"
}

# read_session_files ROOT ID PATTERN...: print what was added to the agent's session files since the turn began.
read_session_files() {
    place "$1" "$2"
    shift 2
    [ -d "$spool" ] || refuse spool_missing "$spool"
    [ -f "$spool/session_root" ] || refuse spool_missing "$spool"
    IFS= read -r session_root <"$spool/session_root"
    [ -d "$session_root" ] && cd -- "$session_root" || return 0
    for file in $*; do
        if [ -f "$file" ]; then read_appended "$file"; fi
    done
    check_sizes
}

# check_sizes: if the spool is being removed, they are missing, and old parts would pass for new ones.
check_sizes() {
    [ -f "$spool/session_sizes" ] || refuse spool_missing "$spool"
}

read_appended() {
    check_sizes
    from=0
    while read -r size name; do
        if [ "$name" = "$1" ] && are_numbers "$size"; then from=$size; fi
    done <"$spool/session_sizes"
    tail -c "+$((from + 1))" -- "$1"
    echo
}

# read_whole_session_files ROOT ENV DEFAULT PATTERN...: print an agent's session files, of a turn without a spool.
read_whole_session_files() {
    session_root=$1 session_env=$2 session_default=$3
    shift 3
    locate_sessions
    cd -- "$session_root" 2>/dev/null || return 0
    for file in $*; do
        if [ -f "$file" ]; then cat -- "$file" && echo; fi
    done
}
