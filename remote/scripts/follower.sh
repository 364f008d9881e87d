# The follower: the host's end of one attachment. It answers when it is ready, streams `events` from an offset, and
# reads lines: a number is a heartbeat, C cancels the turn, T asks its agent to finish by itself. For a live turn,
# S sends a line of input, and F ends the input. For a finished turn, E requests the end of its agent's stderr, and
# R removes the spool. The end of the follower's input detaches; the turn keeps running.
#
# A heartbeat says how many seconds after our answer it was sent. So one that a cut connection has delayed by more
# than `stale` seconds is distinguished from a fresh one, and renews nothing: a worker may rely on the lease's end.
#
# Callers set `root`, `id` and `seal`, `stale`, `nonce` (of this attachment's answers), `follower` (its name), its
# `epoch`, `offset` and RUNTURN_SCRIPT.

# answer WORDS...: on a separate line, whatever a start-up file of the login shell has printed before.
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
    if [ -z "$started_here" ]; then
        [ -f "$spool/events" ] && size=$(wc -c <"$spool/events") && size=$((size)) || exit
    fi
    [ "$offset" -le "$size" ] || refuse spool_shortened "$spool has $size bytes of output, not $offset"
    replace_predecessor
    tail=
    beats=0
    trap leave TERM
    take_over_input || exit
    ready_at=
    ended_at=
    cancelled_at=
    stopped=
    if uptime; then ready_at=$now; fi
    launched_at=$ready_at
    answer "RT-READY $nonce $size${said_lines:+ $said_lines}"
    if ended; then replay; else stream; fi
    listen
    leave
}

# miss_spool: give no answer, so that the worker retries, if the spool exists but cannot be read right now.
miss_spool() {
    if [ -d "$spool" ]; then exit 1; fi
    refuse spool_missing "$spool"
}

# KILL, because a shell that was just forked to become tail would handle TERM by its parent's trap, and lose it.
leave() {
    if alive $tail; then kill -KILL "${tail%% *}"; fi
    exit
} 2>/dev/null

# A follower that reconnects ends its previous attachment: sshd may keep a dead connection for hours.
replace_predecessor() {
    get "follower.$follower"
    predecessor=$value
    sign "follower.$follower"
    dismiss $predecessor
    if is_live; then await_silence $predecessor; fi
}

# await_silence PID START: it may be in the middle of a line. If its writes block, it does not handle TERM.
await_silence() {
    waited=0
    while alive "$@" && [ "$waited" -lt 20 ]; do pause; done
    if alive "$@"; then kill -KILL "$1"; fi
} 2>/dev/null

# replay: a finished turn. Repeats the marker in case the disk was too full for it, or a tool has removed it.
replay() {
    tail -c "+$((offset + 1))" "$spool/events" </dev/null &
    start_time $!
    tail="$! $started_at"
    # Killed, it has not printed all of it. Without the file, there is nothing to print.
    wait "${tail%% *}"
    [ "$?" -lt 128 ] || leave
    tail=
    get end
    set -- $value
    # Older turns recorded neither CPU nor memory.
    if [ "$#" -lt 6 ]; then set -- "$1" "$2" "$3" - -; fi
    make_marker "$1" "$2" "$4" "$5" -
    answer "$marker"
}

# stream: print the agent's output as it comes; without inotify, within a second.
stream() {
    patience=
    if crowded && tail -s 0.15 -c 0 "$spool/turn" 2>/dev/null; then patience="-s 0.15"; fi
    tail -c "+$((offset + 1))" $patience -f "$spool/events" </dev/null &
    start_time $!
    tail="$! $started_at"
    # The supervisor of a turn that has just begun may not have signed yet.
    if ! running supervisor && [ "$value" ] && ! ended; then watch_over; fi
}

# crowded: true if the kernel may be out of inotify instances for another tail. It usually gives each user 128, and
# a turn has five or more processes besides its tail. Without inotify, tail polls every second, or as often as
# requested: at 0.15 s, a thousand tails use less than a core.
crowded() {
    set -- /proc/[0-9]*
    [ "$#" -gt 256 ]
}

# listen: input for agents is bytes, whatever the host's locale.
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
        if ended; then leave_without_marker; elif settled_in; then watch_over; fi
    done
}

# settled_in: true once a process that was just started has had time to sign.
settled_in() {
    if [ -z "$launched_at" ] || ! uptime; then return; fi
    [ "$((now - launched_at))" -ge 2 ]
}

fresh() {
    in_time "$ready_at" "$1"
}

# in_time SINCE SECONDS: true if what arrives now, sent SECONDS after our answer at SINCE, was not long in transit.
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

# ask_to_end TEXT: for the agent's next check, which finds all of it or nothing.
ask_to_end() {
    # An older worker's agent looks for it in the spool itself.
    if [ -d "$spool/files" ]; then word=files/stop; else word=stop; fi
    clear_way "$word.new"
    printf '%s\n' "$1" >"$spool/$word.new" && mv "$spool/$word.new" "$spool/$word"
}

cancel() {
    want_end cancel
    if uptime; then cancelled_at=$now; fi
    get watcher
    if ours $value; then kill -USR1 "${value%% *}"; fi
}

# unheeded: true if the turn should have ended long ago by a cancel. A watcher waits a minute for the supervisor.
unheeded() {
    [ "$cancelled_at" ] && uptime || return
    measure_ladder
    [ "$((now - cancelled_at))" -ge "$((climb + 90))" ] || return
    cancelled_at=$now
}

# tell_stderr: print its last 64 KiB, between two marks.
tell_stderr() {
    still_tail
    answer "RT-STDERR $nonce"
    if [ -s "$spool/err" ]; then tail -c 65536 "$spool/err"; fi
    answer "RT-END $nonce"
}

# still_tail: from now on, all output is ours.
still_tail() {
    if alive $tail; then
        kill -KILL "${tail%% *}"
        wait "${tail%% *}"
    fi
    tail=
} 2>/dev/null

# remove: also ends this shell.
remove() {
    still_tail
    await_disuse
    answer "RT-REMOVING $nonce"
    exec rm -rf "$spool" "$root/.$id".??????
}

# leave_without_marker: if the marker will not arrive through `events`, since the disk was full, or a tool has removed
# the file or killed `tail`, the next attachment gets it from replay. A worker that has the marker sends its next
# request within seconds.
leave_without_marker() {
    [ "$tail" ] || return 0
    case $value in
    *" unmarked "*) leave ;;
    esac
    alive $tail || leave
    uptime || return 0
    if [ -z "$ended_at" ]; then ended_at=$now; fi
    if [ "$((now - ended_at))" -ge 10 ]; then leave; fi
}

# watch_over: replace a watcher that is dead or does not work. Without it, a turn has no lease, and without its
# supervisor no end.
watch_over() {
    if [ ! -d "$spool" ] || ! alive $tail; then leave; fi
    get watcher
    ours $value && works $value && ! unheeded && return
    if uptime; then launched_at=$now; fi
    detach watch_again "$spool" >/dev/null 2>&1
}

# detach FUNCTION ARGS...: run it in a shell that outlives this one, and knows the seal. The first setsid leads a
# session, so the second must fork to lead one, and so returns.
detach() {
    export RUNTURN_SCRIPT
    echo "$seal" | setsid setsid sh -c \
        'read -r seal || exit; exec </dev/null >/dev/null 2>&1; eval "$RUNTURN_SCRIPT"; "$@"' runturn "$@"
}
