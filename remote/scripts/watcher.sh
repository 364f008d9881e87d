# The watcher: the shell that guards the lease of a turn. It terminates the agent when the turn is no longer
# followed, on request, and when the supervisor has died. It sleeps for seconds at a time (a host may have a
# thousand watchers), and USR1 wakes it. If the watcher itself dies, a follower starts the next one; the last to
# sign is the watcher.

watch() {
    sleeper=
    woken=
    idle=0
    last_beat=
    looked_at=
    trap 'woken=yes; wake' USR1
    trap 'wake; exit' TERM
    sign watcher
    watcher_signature=$signature
    set_tick
    while still_needed; do
        get reason
        if [ "$value" ]; then end_agent; fi
        nap
        renew_lease
    done
}

# watch_again SPOOL: replace a watcher that died. Of several at once, the last to sign stays.
watch_again() {
    spool=$1
    load_turn
    shed_limit
    learn_limit
    # It may be woken as soon as it has signed, and checks for requests once it watches.
    trap : USR1
    sign watcher
    watcher_signature=$signature
    waited=0
    while [ "$waited" -lt 10 ]; do pause; done
    get watcher
    if [ "$value" = "$watcher_signature" ] && ! ended; then watch; fi
}

# still_needed: false once another one watches, or the turn is over.
still_needed() {
    if [ ! -d "$spool" ]; then
        sweep
        return 1
    fi
    get watcher
    # Blank: it cannot be read right now.
    [ -z "$value" ] || [ "$value" = "$watcher_signature" ] || return 1
    supervised && return
    # An agent that has not signed yet cannot be terminated: once it signs, it finds the reason and does not start.
    want_end lost
    end_agent
    sweep
    finish - lost
    return 1
}

# supervised: false if the supervisor is dead; it may not have signed yet when a replacement watcher starts.
supervised() {
    waited=0
    get supervisor
    while [ -z "$value" ] && [ "$waited" -lt 50 ]; do
        pause
        get supervisor
    done
    running supervisor
}

# A sixth of the lease, from 1 to 10 seconds.
set_tick() {
    tick=$((lease / 6))
    if [ "$tick" -gt 10 ]; then tick=10; fi
    if [ "$tick" -lt 1 ]; then tick=1; fi
}

# nap: for one tick, or until USR1. A signal before the wait shows in `woken`; one after it kills the sleeper.
nap() {
    sleep "$tick" &
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
    get heartbeat
    measure_nap
    idle=$((idle + napped))
    if [ "$value" != "$last_beat" ]; then idle=0 last_beat=$value; fi
    if [ "$idle" -ge "$lease" ]; then want_end lease; fi
}

# measure_nap: sets `napped`, in seconds. After the whole machine slept, followers have two ticks to return.
measure_nap() {
    napped=$tick
    uptime || return 0
    if [ "$looked_at" ]; then napped=$((now - looked_at)); fi
    looked_at=$now
    most=$((lease - idle - 2 * tick))
    if [ "$most" -lt "$tick" ]; then most=$tick; fi
    if [ "$napped" -gt "$((3 * tick))" ] && [ "$napped" -gt "$most" ]; then napped=$most; fi
}
