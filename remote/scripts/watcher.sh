# The watcher: the shell that guards the lease of a turn. It terminates the agent when the turn is no longer
# followed, on request, and when the supervisor has died or stands still. It sleeps for seconds at a time (a host
# may have a thousand watchers), and USR1 wakes it. If the watcher itself dies or is stopped, a follower starts the
# next one. Where there is no follower, its guard takes its place. Whoever takes the watch dismisses the former watcher;
# none leaves because of what the file says, which a tool could have written.

watch() {
    idle=0
    last_beat=
    looked_at=
    take_watch
}

# take_watch: go on with `idle`, `last_beat` and `looked_at`, as known to this shell.
take_watch() {
    sleeper=
    woken=
    over_for=0
    napped=0
    guard=
    keeper=
    stopped=
    trap 'woken=yes; wake' USR1
    trap 'wake; dismiss $guard; dismiss $keeper; exit' TERM
    dismiss_watcher
    sign watcher
    watcher_signature=$signature
    set_times
    while still_needed; do
        get reason
        # The lease, too: a tool could remove what was written.
        if [ "$value" ] || [ "$idle" -ge "$lease" ]; then end_agent; fi
        works $guard || start_guard
        if [ "$max_memory$max_processes$max_disk" ]; then works $keeper || start_keeper; fi
        nap "$tick"
        works $keeper || note_peak
        renew_lease
    done
    dismiss $guard
    dismiss $keeper
}

# dismiss_watcher: the one that signed last.
dismiss_watcher() {
    get watcher
    if ours $value; then dismiss $value; fi
}

start_guard() {
    (stand_guard) &
    start_time $!
    guard="$! $started_at"
}

tell_excess() {
    want_end "$1"
}

start_keeper() {
    (keep_limits) &
    start_time $!
    keeper="$! $started_at"
}

# stand_guard: take the watch of a watcher that is dead or stopped, or that has done nothing for long about a lease
# that expired.
stand_guard() {
    trap 'wake; exit' TERM
    sleeper=
    woken=
    stopped=
    while on_guard; do
        nap "$((2 * tick))"
        measure_idleness
        if works $watcher_signature && [ "$idle" -lt "$overdue" ]; then
            # Its sleeper may have been stopped.
            if [ "$idle" -ge "$lease" ]; then kill -USR1 "${watcher_signature%% *}"; fi
            continue
        fi
        on_guard || break
        if alive $watcher_signature; then kill -KILL "${watcher_signature%% *}"; fi
        take_watch
        exit
    done
    [ -d "$spool" ] || sweep
} 2>/dev/null

# on_guard: false once the turn is over.
on_guard() {
    [ -d "$spool" ] && ! ended
}

# watch_again SPOOL: replace a watcher that died.
watch_again() {
    spool=$1
    load_turn
    shed_limit
    load_limits
    IFS= read -r workspace <"$spool/workspace"
    get supervisor
    if ours $value; then supervisor_signature=${value% }; fi
    learn_limit
    get agent
    case $value in
    *" contained"*) wall=unknown ;;
    esac
    ended || watch
}

# still_needed: false once the turn is over.
still_needed() {
    if [ ! -d "$spool" ]; then
        sweep
        return 1
    fi
    get watcher
    # Blank: it cannot be read right now. Otherwise another one took the watch at the same moment, or a tool wrote this.
    if [ "$value" ] && [ "$value" != "$watcher_signature" ]; then
        dismiss_watcher
        sign watcher
    fi
    supervised && urge_supervisor && return
    ended && return 1
    # An agent that has not signed yet cannot be terminated: once it signs, it finds the reason and does not start.
    want_end lost
    end_agent
    sweep
    if [ -f "$spool/out" ]; then copy_rest; fi
    close_scope
    await_first
    finish - lost
    return 1
}

# await_first: several watchers may find at the same moment that the turn is lost. The first to create this link records
# it; one that was killed before it could leaves that to the others.
await_first() {
    if ln "$spool/turn" "$spool/lost"; then return; fi
    waited=0
    while ! ended && [ "$waited" -lt 50 ]; do pause; done
} 2>/dev/null

# supervised: false if the supervisor is dead; it may not have signed yet when a replacement watcher starts. Its own
# subshells know it, whatever a tool has written.
supervised() {
    if [ "$supervisor_signature" ]; then
        value=$supervisor_signature
        alive $value
        return
    fi
    waited=0
    get supervisor
    while [ -z "$value" ] && [ "$waited" -lt 50 ]; do
        pause
        get supervisor
    done
    running supervisor
}

# urge_supervisor: continue one that was stopped; false, once it is killed, if it has not concluded the turn long
# after its agent's end, or after the agent was not to start any more.
urge_supervisor() {
    supervisor=$value
    case $activity in
    [Tt]) kill -CONT "${supervisor%% *}" ;;
    esac
    get agent
    if [ -z "$value" ]; then get reason; elif alive $value; then value=; fi
    if [ -z "$value" ]; then
        over_for=0
        return
    fi
    over_for=$((over_for + napped))
    [ "$over_for" -ge 60 ] || return 0
    kill -KILL "${supervisor%% *}"
    return 1
} 2>/dev/null

# set_times: sets `tick`, a sixth of the lease, from 1 to 10 seconds, and `overdue`, when a watcher has had ample time
# to end the turn after its lease.
set_times() {
    tick=$((lease / 6))
    if [ "$tick" -gt 10 ]; then tick=10; fi
    if [ "$tick" -lt 1 ]; then tick=1; fi
    measure_ladder
    overdue=$((lease + climb + 60))
}

# measure_ladder: sets `climb`, the seconds that the stop ladder takes.
measure_ladder() {
    climb=0
    for rung in $ladder; do climb=$((climb + ${rung#*:} / 10)); done
}

# nap SECONDS: or until USR1. A signal before the wait shows in `woken`; one after it kills the sleeper.
nap() {
    napped=$1
    sleep "$1" &
    sleeper=$!
    if [ "$woken" ]; then wake; fi
    wait "$sleeper"
    sleeper=
    woken=
}

# KILL, because a shell that was just forked to become sleep would handle a gentler signal by its parent's trap.
wake() {
    if [ "$sleeper" ]; then kill -KILL "$sleeper"; fi
}

renew_lease() {
    measure_idleness
    if [ "$idle" -ge "$lease" ]; then want_end lease; fi
}

# measure_idleness: sets `idle`, the seconds since the last heartbeat.
measure_idleness() {
    get heartbeat
    measure_nap
    idle=$((idle + napped))
    if [ "$value" != "$last_beat" ]; then idle=0 last_beat=$value; fi
}

# measure_nap: corrects `napped`. After the whole machine slept, followers have two ticks to return.
measure_nap() {
    uptime || return 0
    if [ "$looked_at" ]; then napped=$((now - looked_at)); fi
    looked_at=$now
    most=$((lease - idle - 2 * tick))
    if [ "$most" -lt "$tick" ]; then most=$tick; fi
    if [ "$napped" -gt "$((3 * tick))" ] && [ "$napped" -gt "$most" ]; then napped=$most; fi
}
