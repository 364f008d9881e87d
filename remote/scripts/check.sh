# A command of a producer's in the workspace of a turn whose agent has ended, such as its tests: for so long, with the
# end of its output. It carries the mark of the turn, so that nothing of it is left behind, wherever it went.
#
# One that ends this very shell, as `pkill sh` would, would be run for ever by one worker after the other: `begun` counts
# how often it was begun and was not seen to end.
#
# A worker that was frozen, and lost the turn to another one meanwhile, goes on where it was: in the middle of this. It
# starts no command beside that of its successor, who has a higher EPOCH, and ends none of that one's.
#
# check ROOT ID EPOCH DIRECTORY SECONDS BYTES COMMAND ENVIRONMENT: exits as the command does, with 137 after so long.
check() {
    place "$1" "$2"
    epoch=$3
    shift
    : >"$spool/checker.$epoch" || exit 90
    end_checks
    superseded && return 143
    begun=$spool/check.${#6}.$(printf %s "$6" | LC_ALL=C tr -c 'A-Za-z0-9' _ | tail -c 100)
    if [ -e "$begun" ] && [ "$(($(wc -c <"$begun")))" -ge 5 ]; then
        echo "It was begun 5 times, and ended whoever ran it, or their connection: it is not tried again."
        return 137
    fi
    printf . >>"$begun"
    (umask 077 && printf '%s\n' "$6" >"$spool/command.$epoch" && mkfifo "$spool/printed.$epoch") || exit 90
    tail -c "$5" <"$spool/printed.$epoch" 4>&- &
    reader=$!
    (enter "$3" "$7") </dev/null >"$spool/printed.$epoch" 2>&1 4>&- &
    checked=$!
    # It looks for us first: a sweep after our end may have missed it, just becoming another program.
    RUNTURN_SPOOL=$spool setsid sh -c 'kill -0 "$3" && sleep "$1"; kill -KILL "-$2"' \
        guard "$4" "$checked" "$$" >/dev/null 2>&1 4>&- &
    guard=$!
    wait "$checked"
    code=$?
    for left in "-$checked" "-$guard" "$guard"; do kill -KILL "$left" 2>/dev/null; done
    end_checks
    # Whoever hid from that may hold the output open.
    waited=0
    while kill -0 "$reader" 2>/dev/null && [ "$waited" -lt 20 ]; do pause; done
    kill -KILL "$reader" 2>/dev/null
    rm -f "$begun"
    return "$code"
}

# enter DIRECTORY ENVIRONMENT: become the command. The locale as in `launch`.
enter() {
    cd -- "$1" || exit 126
    export RUNTURN_SPOOL="$spool" RUNTURN_CHECK="$epoch"
    # As arguments: the environment may hold any name.
    set -- "${LC_ALL-}" "$2" "$(command -v setsid)" "$spool/command.$epoch"
    LC_ALL=C
    superseded && exit 143
    eval "$2"
    unset OLDPWD RUNTURN_SCRIPT
    exec "$3" sh "$4"
}

# superseded: has a worker with a higher epoch been here?
superseded() {
    for checker in "$spool"/checker.*; do
        if [ "${checker##*.}" -gt "$epoch" ]; then return 0; fi
    done
    return 1
} 2>/dev/null

# end_checks: those that are there, be they of a worker that was killed, but none of a higher epoch.
end_checks() {
    sweep
    rm -f "$spool/command.$epoch" "$spool/printed.$epoch"
}

# spared PID: does it belong to a command of a higher epoch?
spared() {
    mark=$(tr '\0' '\n' <"/proc/$1/environ" | grep -x 'RUNTURN_CHECK=[0-9]*')
    [ "${mark#RUNTURN_CHECK=}" -gt "$epoch" ]
} 2>/dev/null

# end_checks_of ROOT ID EPOCH
end_checks_of() {
    place "$1" "$2"
    epoch=$3
    end_checks
}
