# The follower: the far end of one attachment. It says that it is ready, streams `events` from an offset, and takes
# lines: a number is a heartbeat, C cancels the turn, T asks its agent to end by itself. To a live turn, S says a line,
# and F ends what is said. Of a turn that has ended, E asks for the end of what its agent wrote to stderr, and R has the
# spool removed. The end of its input detaches; the turn lives on.
#
# A heartbeat says how many seconds before it was sent the sender had our answer. So one that a cut link has kept for
# longer than `stale` seconds is told from a fresh one, and renews nothing: somebody may count on the lease's end.
#
# Callers set `root` and `id`, `stale`, `nonce` (of this attachment's answers), `follower` (who follows), its `epoch`,
# `offset` and RUNTURN_SCRIPT.

# answer WORDS...: on a line of its own, whatever a start-up file of the login shell has printed before.
answer() {
    printf '\n%s\n' "$*"
}

# refuse CODE DETAIL
refuse() {
    if [ "$draft" ]; then rm -rf "$draft"; fi
    answer "RT-REFUSED $nonce $1" "$(printf %s "$2" | tr '\n' ' ')"
    exit 1
}

attach() {
    require_tools
    place "$root" "$id"
    started_here=
    follow
}

follow() {
    umask 077
    load_turn || miss_spool
    size=0
    if [ -z "$started_here" ]; then size=$(wc -c <"$spool/events") && size=$((size)) || exit; fi
    [ "$offset" -le "$size" ] || refuse spool_missing "$spool has $size bytes of output, not $offset"
    replace_predecessor
    tail=
    beats=0
    trap leave TERM
    take_over_input || exit
    ready_at=
    if uptime; then ready_at=$now; fi
    answer "RT-READY $nonce $size $turn_nonce${said_lines:+ $said_lines}"
    if ended; then replay; else stream; fi
    listen
    leave
}

# miss_spool: no answer, but another try, where it is there and cannot be read just now.
miss_spool() {
    if [ -d "$spool" ]; then exit 1; fi
    refuse spool_missing "$spool"
}

# KILL, because a shell that was just forked to become tail would take TERM with its parent's trap, and lose it.
leave() {
    if alive $tail; then kill -KILL "${tail%% *}"; fi
    exit
} 2>/dev/null

# A follower that reconnects ends its former attachment: sshd may keep a dead connection for hours.
replace_predecessor() {
    predecessor=
    if running "follower.$follower"; then predecessor=${value%% *}; fi
    sign "follower.$follower"
    [ "$predecessor" ] && kill "$predecessor" || return 0
    if is_live; then await_silence $value; fi
}

# await_silence PID START: it may be in the middle of a line. One that cannot write any more hears no TERM.
await_silence() {
    waited=0
    while alive "$@" && [ "$waited" -lt 20 ]; do pause; done
    if alive "$@"; then kill -KILL "$1"; fi
} 2>/dev/null

# replay: an ended turn. The marker is repeated in case the disk was too full for it.
replay() {
    tail -c "+$((offset + 1))" "$spool/events" </dev/null &
    start_time $!
    tail="$! $started_at"
    wait "${tail%% *}"
    get end
    set -- $value
    answer "{\"runturn\":\"$turn_nonce\",\"exit\":\"$1\",\"reason\":\"$2\"}"
}

# stream: what the agent prints, when it prints it; without inotify, within a second.
stream() {
    patience=
    if crowded && tail -s 0.15 -c 0 "$spool/turn" 2>/dev/null; then patience="-s 0.15"; fi
    tail -c "+$((offset + 1))" $patience -f "$spool/events" </dev/null &
    start_time $!
    tail="$! $started_at"
    # The supervisor of a turn that has just begun may not have signed yet.
    if ! running supervisor && [ "$value" ] && ! ended; then watch_over; fi
}

# crowded: does the kernel have no more inotify for another tail, maybe? It gives each user 128 as a rule, and a turn has
# three processes and more beside its tail. Then tail looks again every second, or as often as it is told: 0.15 s costs
# a thousand tails less than a core.
crowded() {
    set -- /proc/[0-9]*
    [ "$#" -gt 256 ]
}

# listen: what is said to agents is bytes, whatever the host's locale makes of them.
listen() {
    LC_ALL=C
    while IFS= read -r line; do
        case $line in
        C) cancel ;;
        "S "*) ended || hear "${line#??}" ;;
        F) end_input ;;
        "T "*) ask_to_end "${line#??}" ;;
        E) tell_stderr ;;
        R) remove ;;
        *[!0-9]*) ;;
        ?*) if fresh "$line"; then beat; fi ;;
        esac
        if ended; then leave_unmarked; elif settled_in; then watch_over; fi
    done
}

# settled_in: whoever was just started has had the time to sign.
settled_in() {
    if [ -z "$ready_at" ] || ! uptime; then return; fi
    [ "$((now - ready_at))" -ge 2 ]
}

fresh() {
    in_time "$ready_at" "$1"
}

# in_time SINCE SECONDS: was what comes now sent so long after our word at SINCE, and was not long under way?
in_time() {
    if [ -z "$1" ] || ! uptime; then return 0; fi
    [ "$((now - $1 - $2))" -le "$stale" ]
}

beat() {
    beats=$((beats + 1))
    put heartbeat "$$ $beats"
}

# hear "NUMBER BYTES LINE"
hear() {
    number=${1%% *}
    set -- "${1#* }"
    say "$number" "${1%% *}" "${1#* }"
}

# ask_to_end TEXT: for the agent's next look, which finds all of it or nothing.
ask_to_end() {
    printf '%s\n' "$1" >"$spool/stop.new" && mv "$spool/stop.new" "$spool/stop"
}

cancel() {
    want_end cancel
    if running watcher; then kill -USR1 "${value%% *}"; fi
}

# tell_stderr: its last 64 KiB, between two marks.
tell_stderr() {
    still_tail
    answer "RT-STDERR $nonce"
    if [ -s "$spool/err" ]; then tail -c 65536 "$spool/err"; fi
    answer "RT-END $nonce"
}

# still_tail: whatever comes from now on is ours.
still_tail() {
    if alive $tail; then
        kill -KILL "${tail%% *}"
        wait "${tail%% *}"
    fi
    tail=
} 2>/dev/null

# remove: this shell ends with it.
remove() {
    still_tail
    await_disuse
    answer "RT-REMOVING $nonce"
    exec rm -rf "$spool" "$root/.$id".??????
}

# The marker will not come by `events`: the next attachment gets it from replay.
leave_unmarked() {
    case $value in
    *unmarked) leave ;;
    esac
}

# watch_over: a turn without its watcher would have no lease, and without its supervisor no end.
watch_over() {
    if [ ! -d "$spool" ] || ! alive $tail; then leave; fi
    running watcher && return
    RUNTURN_SCRIPT=$RUNTURN_SCRIPT setsid setsid sh -c 'eval "$RUNTURN_SCRIPT"; watch_again "$@"' runturn "$spool" \
        </dev/null >/dev/null 2>&1
}
