# The supervisor: one detached shell per turn. It runs the agent in its foreground, because a background command of a
# shell without job control ignores SIGINT for ever, and agents must be able to take it.

# supervise SPOOL CWD ARGV...
supervise() {
    spool=$1
    shift
    # Caught, not ignored: the supervisor survives these, and what it executes has their default action.
    trap : HUP INT TERM
    load_turn
    sign supervisor
    # A watcher that waited too long for this supervisor has given the turn up.
    if ended; then exit; fi
    (watch) &
    start_time $!
    first_watcher="$! $started_at"
    start_feeder
    (launch "$@") <"$spool/prompt" >>"$spool/events" 2>>"$spool/err"
    conclude $?
}

# launch CWD ARGV...: become the agent, in a session of its own. This process leads no group, so setsid does not fork,
# and the agent's number and exit are its own. The environment comes last: it may hold any name.
launch() {
    sign agent
    # Whoever wants the agent ended writes the reason first and looks for the agent then; so one of both sees the other.
    get reason
    if [ "$value" ]; then exit 143; fi
    if is_live; then exec <"$spool/input" || exit 126; fi
    cd -- "$1" || exit 126
    shift
    export RUNTURN_SPOOL="$spool"
    locate setsid
    set -- "$located" "$@"
    # Where sh is bash, it could take bytes of a value for quotes in the host's locale, which the last lines bring back.
    set -- "${LC_ALL-}" "$@"
    LC_ALL=C
    eval "$RUNTURN_ENVIRONMENT"
    shift
    unset RUNTURN_ENVIRONMENT RUNTURN_SCRIPT OLDPWD
    exec "$@"
}

# locate PROGRAM: `located`, where the PATH leads to it; the agent's own PATH may not. `command -v` would need a process
# for its answer.
locate() {
    located=$1
    rest=$PATH:
    while [ "$rest" ]; do
        directory=${rest%%:*}
        rest=${rest#*:}
        if [ -f "$directory/$1" ] && [ -x "$directory/$1" ]; then located=$directory/$1 rest=; fi
    done
}

# conclude CODE: the agent has exited.
conclude() {
    end_feeder
    get reason
    reason=${value:-exit}
    get agent
    group=${value%% *}
    # The number stays theirs as long as anyone is left in the agent's group.
    if [ "$group" ] && ! kill -0 "-$group" 2>/dev/null; then group=; fi
    sweep
    # Who is in its group but hid the mark was not swept.
    if [ "$group" ]; then kill -KILL "-$group" 2>/dev/null; fi
    finish "$1" "$reason"
    dismiss_watchers
}

# The first watcher may not have signed yet, or another one may have taken its place.
dismiss_watchers() {
    if alive $first_watcher; then kill -TERM "${first_watcher%% *}"; fi
    if running watcher; then kill -TERM "${value%% *}"; fi
}
