# A producer's command, such as tests, in the workspace of a turn whose agent has exited: with a time limit, and
# with the end of its output. It carries the turn's mark, so that nothing of it is left behind, wherever it went.
#
# A command that kills this very shell, as `pkill sh` would, would be run forever by one worker after another:
# `begun` counts how often it was started and not seen to finish.
#
# A worker that was frozen, and lost the turn to another, continues where it was: in the middle of this. It starts
# no command next to that of its successor, which has a higher EPOCH, and terminates none of the successor's.
#
# check ROOT ID EPOCH SECONDS BYTES COMMAND ENVIRONMENT: exits like the command, with 137 after SECONDS. It runs in `cwd`;
# callers set what containment.sh needs.
check() {
    place "$1" "$2"
    epoch=$3
    id=check-$2
    shift 3
    choose_wall
    require_sandbox
    clear_way "checker.$epoch"
    : >"$spool/checker.$epoch" || exit 90
    end_checks
    superseded && return 143
    begun=check.${#3}.$(printf %s "$3" | LC_ALL=C tr -c 'A-Za-z0-9' _ | tail -c 100)
    clear_way "$begun"
    begun=$spool/$begun
    if [ -e "$begun" ] && [ "$(($(wc -c <"$begun")))" -ge 5 ]; then
        echo "It was started 5 times, and each time killed its runner or the connection: it is not tried again."
        return 137
    fi
    printf . >>"$begun"
    mkdir -p "$spool/files" # which an older worker's turn has not
    clear_way "files/command.$epoch"
    (umask 077 && put "excess.$epoch" "")
    (umask 077 && printf '%s\n' "$3" >"$spool/files/command.$epoch" && mkfifo "$spool/printed.$epoch") || exit 90
    tail -c "$2" <"$spool/printed.$epoch" 4>&- &
    reader=$!
    (enter "$4") </dev/null >"$spool/printed.$epoch" 2>&1 4>&- &
    checked=$!
    # It first checks that we exist: a sweep after our end may have missed it while it executed another program.
    RUNTURN_SPOOL=$spool setsid sh -c 'kill -0 "$3" && sleep "$1"; kill -KILL "-$2"' \
        guard "$1" "$checked" "$$" >/dev/null 2>&1 4>&- &
    guard=$!
    keeper=
    if [ "$max_kibibytes$max_processes" ]; then
        keep_check_limits </dev/null >/dev/null 2>&1 4>&- &
        start_time $!
        keeper="$! $started_at"
    fi
    wait "$checked"
    code=$?
    if close_scope; then tell_excess memory; fi
    if alive $keeper; then kill -KILL "${keeper% *}"; fi
    for left in "-$checked" "-$guard" "$guard"; do kill -KILL "$left" 2>/dev/null; done
    end_checks
    # A process that hid from that may hold the output open.
    waited=0
    while kill -0 "$reader" 2>/dev/null && [ "$waited" -lt 20 ]; do pause; done
    kill -KILL "$reader" 2>/dev/null
    rm -f "$begun"
    get "excess.$epoch"
    case $value in
    memory | processes) echo "It exceeded max_$value." ;;
    esac
    if [ "$isolation" = sandbox ]; then keep_objects; fi
    return "$code"
}

# enter ENVIRONMENT: become the command. Treats the locale like `launch`.
enter() {
    environment=$1
    export RUNTURN_SPOOL="$spool" RUNTURN_CHECK="$epoch"
    carry_limit
    # As arguments: the environment may contain any name.
    locate sh
    set -- "$located" "$spool/files/command.$epoch"
    bound_tasks
    if [ "$wall" ]; then eval "set -- $wall"' "$located" -c "$init" init "$@"'; fi
    locate setsid
    set -- "${LC_ALL-}" "$environment" "$cwd" "$wall" "$located" "$@"
    LC_ALL=C
    superseded && exit 143
    eval "$2"
    if [ "$4" ]; then hold_back; fi
    cd -- "$3" || exit 126
    unset OLDPWD RUNTURN_SCRIPT
    shift 4
    exec "$@"
}

# keep_check_limits: until the command ends, or exceeds a limit.
keep_check_limits() {
    count_pages
    list_private
    outer=$checked
    start_time "$outer" || return
    outer_since=$started_at
    while alive "$outer" "$outer_since"; do
        look_inside
        if [ "$inner" ]; then compare_with_limits; fi
        sleep 1
    done
}

tell_excess() {
    put "excess.$epoch" "$1"
}

# refuse CODE DETAIL: a workspace that is gone is the agent's fault, and the command fails as it would without isolation.
refuse() {
    if [ "$1" != workspace_missing ]; then
        printf '\n%s %s' "$1" "$(printf %s "$2" | tr '\n' ' ')" >&2
        exit 90
    fi
    echo "there is no workspace $2"
    exit 126
}

# superseded: true if a worker with a higher epoch has been here.
superseded() {
    for checker in "$spool"/checker.*; do
        if [ "${checker##*.}" -gt "$epoch" ]; then return 0; fi
    done
    return 1
} 2>/dev/null

# end_checks: terminate running commands, even those of a killed worker, but none of a higher epoch: its worker has
# already done this, and not all that its command started can be told from ours.
end_checks() {
    superseded || sweep
    rm -f "$spool/files/command.$epoch" "$spool/printed.$epoch"
}

# spared PID: true if it belongs to a command of a higher epoch.
spared() {
    theirs=$(tr '\0' '\n' <"/proc/$1/environ" | grep -x 'RUNTURN_CHECK=[0-9]*')
    [ "${theirs#RUNTURN_CHECK=}" -gt "$epoch" ]
} 2>/dev/null

# end_checks_of ROOT ID EPOCH
end_checks_of() {
    place "$1" "$2"
    epoch=$3
    end_checks
}
