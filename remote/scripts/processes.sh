# Finding and terminating the processes of a turn. All of them inherit RUNTURN_SPOOL in their environment, wherever
# they went: agents run their tool shells in separate process sessions, so a process group alone misses them.
#
# "kill -NAME -GROUP" is the only form that dash, bash and busybox all accept for a group.

# find_members: sets `members` to the pids of all processes of this turn, except those that are `spared`. Takes one
# process if grep supports -z: grep then finds itself, first of all. The list of files is expanded before grep
# starts, or grep would be in it once more.
find_members() {
    set -- /proc/[0-9]*/environ
    found=$(RUNTURN_SPOOL=$spool grep -lszxF "RUNTURN_SPOOL=$spool" /proc/self/environ "$@")
    case $found in
    /proc/self/environ*) found=${found#/proc/self/environ} ;;
    *) find_one_by_one ;;
    esac
    members=
    for environ in $found; do
        environ=${environ#/proc/}
        spared "${environ%/*}" || members="$members ${environ%/*}"
    done
} 2>/dev/null

# spared PID: true for a process to skip. Callers that share a spool with others redefine it.
spared() {
    return 1
}

# Without grep -z: two processes per process of the host, so only if there is something to find.
find_one_by_one() {
    found=
    cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -qxF "RUNTURN_SPOOL=$spool" || return 0
    for environ in /proc/[0-9]*/environ; do
        [ -r "$environ" ] && tr '\0' '\n' <"$environ" | grep -qxF "RUNTURN_SPOOL=$spool" || continue
        found="$found $environ"
    done
}

# find_strays GROUP: sets `strays` to the members that a signal to the group does not reach. To the others, a
# second signal could mean something else.
find_strays() {
    strays=
    find_members
    for member in $members; do
        read -r stat <"/proc/$member/stat" || continue
        set -- "$1" ${stat##*) }
        if [ "$4" != "$1" ]; then strays="$strays $member"; fi
    done
} 2>/dev/null

# pause: wait as briefly as this host's sleep can, and add the time to `waited`, in tenths of a second.
pause() {
    if sleep 0.1; then waited=$((waited + 1)); else sleep 1 && waited=$((waited + 10)); fi
} 2>/dev/null

# await_disuse: before a spool is removed, with the drafts of its starts that were cut off. A supervisor needs a
# moment to sign after its start, and to record the end after its marker. Callers define `refuse CODE DETAIL`.
await_disuse() {
    load_turn || return 0
    waited=0
    while { held || starting; } && [ "$waited" -lt 5 ]; do pause; done
    if held; then refuse spool_in_use "$spool"; fi
}

# held: true if the turn has not finished, and a process exists that will finish it.
held() {
    ended && return 1
    running supervisor || running watcher
}

starting() {
    ended && return 1
    get supervisor
    [ -z "$value" ]
}

# agent_group: sets `group`, the number of the agent's process group; blank if there is none. A tool may have written
# it: 1 and 0 would mean all processes that we can signal, and our own group.
agent_group() {
    get agent
    group=${value%% *}
    case $group in
    *[!0-9]* | 0* | 1) group= ;;
    esac
}

# end_agent: climb the stop ladder until the agent has exited. INT goes to the agent alone, which stops its own
# tools; the other signals go to everything that belongs to the turn.
end_agent() {
    agent_group
    if [ -z "$group" ]; then
        sweep
        return
    fi
    for rung in $ladder KILL:50; do
        running agent || return 0
        strays=
        if [ "${rung%:*}" != INT ]; then find_strays "$group"; fi
        # It signs just before it leads its group.
        if ! kill -0 "-$group"; then strays="$strays $group"; fi
        kill "-${rung%:*}" "-$group" $strays
        await_agent "${rung#*:}"
    done
} 2>/dev/null

# await_agent TENTHS: wait until the agent has exited, at most that many tenths of a second.
await_agent() {
    waited=0
    while [ "$waited" -lt "$1" ] && running agent; do pause; done
}

# sweep: terminate what the agent left behind.
sweep() {
    press TERM 20 || press KILL 50
}

# press SIGNAL TENTHS: signal until no process of the turn is left. New ones may appear, so KILL is repeated. A
# process that is executing another program briefly shows no environment: two scans in a row must find nothing.
press() {
    waited=0 looks=0
    while [ "$waited" -lt "$2" ]; do
        find_members
        if [ -z "$members" ]; then
            looks=$((looks + 1))
            if [ "$looks" = 2 ]; then return 0; fi
            continue
        fi
        looks=0
        if [ "$1" = KILL ] || [ "$waited" = 0 ]; then kill "-$1" $members; fi
        pause
    done
    return 1
} 2>/dev/null
