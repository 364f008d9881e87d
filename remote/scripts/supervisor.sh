# The supervisor: one detached shell per turn. It runs the agent in its foreground, because a background command of
# a shell without job control ignores SIGINT forever, and agents must be able to receive it.

# supervise SPOOL CWD ARGV...
supervise() {
    spool=$1
    shift
    # Caught, not ignored: the supervisor survives these, and programs that it executes get their default action.
    trap : HUP INT TERM USR1
    load_turn
    shed_limit
    wall=$RUNTURN_WALL isolation=$RUNTURN_ISOLATION scope=$RUNTURN_SCOPE
    unset RUNTURN_WALL RUNTURN_ISOLATION RUNTURN_SCOPE
    load_limits
    sign supervisor
    supervisor_signature=$signature
    learn_limit
    workspace=$1
    # A watcher that waited too long for this supervisor has given up the turn.
    if ended; then exit; fi
    (watch) &
    start_time $!
    first_watcher="$! $started_at"
    start_feeder
    if [ "$isolation" = sandbox ]; then
        run_copied "$@"
    else
        (launch "$@") <"$spool/prompt" >>"$spool/events" 2>>"$spool/err"
        code=$?
    fi
    read_times
    if [ "$isolation" = sandbox ]; then
        cwd=$1
        keep_objects
    fi
    conclude "$code"
}

# run_copied CWD ARGV...: sets `code`. What an agent prints, its tools can open, and shorten or overwrite: so it goes to
# `out`, and `events` has a copy. A pipe instead would lose output: some agents exit before they have written all of it.
run_copied() {
    RUNTURN_SPOOL=$spool tail -c +1 -f "$spool/out" </dev/null >>"$spool/events" 2>/dev/null &
    copier=$!
    (launch "$@") <"$spool/prompt" >>"$spool/out" 2>>"$spool/err"
    code=$?
    kill -KILL "$copier"
    wait "$copier"
    waited=0
    until copy_rest || [ "$waited" -ge 300 ]; do pause; done
} 2>/dev/null

# copy_rest: fails without room.
copy_rest() {
    copied=$(wc -c <"$spool/events") || return
    tail -c "+$((copied + 1))" "$spool/out" >>"$spool/events"
}

# launch CWD ARGV...: become the agent, in a separate process session, and in what contains it. This process leads no
# group, so setsid does not fork, and the agent's pid and exit are ours, or those of what contains it. The environment
# comes last: it may contain any name.
launch() {
    # First, so that whoever has signed is found.
    carry_limit
    sign agent ${wall:+contained}
    # Others write the reason before they check for the agent; we sign before we read it: so at least one of the two
    # notices.
    get reason
    if [ "$value" ]; then exit 143; fi
    if is_live; then exec <"$spool/input" || exit 126; fi
    launch_directory=$1
    shift
    export RUNTURN_SPOOL="$spool"
    locate setsid
    set -- "$located" "$@"
    if [ "$wall" ]; then
        bound_tasks
        locate sh
        set -- "$located" -c "$init" init "$@"
        eval "set -- $wall"' "$@"'
    fi
    # If sh is bash, it could mistake bytes of a value for quotes in the host's locale; the last line restores it.
    set -- "${LC_ALL-}" "$launch_directory" "$wall" "$@"
    LC_ALL=C
    eval "$RUNTURN_ENVIRONMENT"
    # Before anything looks for libraries where the agent could have put some.
    if [ "$3" ]; then hold_back; fi
    cd -- "$2" || exit 126
    shift 3
    unset RUNTURN_ENVIRONMENT RUNTURN_SCRIPT OLDPWD
    exec "$@"
}

# conclude CODE: the agent has exited.
conclude() {
    end_feeder
    get reason
    case $value in
    "") reason=exit ;;
    cancel | lease | memory | processes | disk) reason=$value ;;
    # Or a tool has written something, for which the watcher has terminated the agent.
    *) reason=lost ;;
    esac
    if close_scope && [ "$reason" = exit ]; then reason=memory; fi
    # A wall that was killed may be outlived by what it contained, for a moment.
    if [ -z "$wall" ]; then sweep_group; elif [ "$1" = 137 ]; then await_inner || sweep; fi
    # unshare and bwrap disagree about the exit of one whose init was killed.
    case $reason in
    memory | processes) finish 137 "$reason" ;;
    *) finish "$1" "$reason" ;;
    esac
    dismiss_watchers
}

# sweep_group: and what is in the agent's process group, and hid the mark. A tool may have written its number: 1 and 0
# would mean all processes that we can signal, and our own group.
sweep_group() {
    get agent
    group=${value%% *}
    case $group in
    *[!0-9]* | 0* | 1) group= ;;
    esac
    # The number is not reused while any process is left in the group.
    if [ "$group" ] && ! kill -0 "-$group" 2>/dev/null; then group=; fi
    sweep
    if [ "$group" ]; then kill -KILL "-$group" 2>/dev/null; fi
}

# The first watcher may not have signed yet, or another one may have replaced it.
dismiss_watchers() {
    dismiss $first_watcher
    get watcher
    if [ "$value" != "$first_watcher" ] && ours $value; then dismiss $value; fi
}
