# Finding and ending the processes of a turn. All of them inherit RUNTURN_SPOOL in their environment, wherever they
# went: agents give their tool shells sessions of their own, so that a process group alone misses them.
#
# "kill -NAME -GROUP" is the only form that dash, bash and busybox all take for a group.

# marked: the pids of all processes of this turn.
marked() {
    if printf 'a\0b\0' | grep -qzx b; then
        grep -lszxF "RUNTURN_SPOOL=$spool" /proc/[0-9]*/environ | tr -dc '0-9\n'
    elif cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -qxF "RUNTURN_SPOOL=$spool"; then
        marked_one_by_one
    fi 2>/dev/null
}

# Without grep -z: two processes for each process of the host, so only when there is something to find.
marked_one_by_one() {
    for environ in /proc/[0-9]*/environ; do
        [ -r "$environ" ] && tr '\0' '\n' <"$environ" | grep -qxF "RUNTURN_SPOOL=$spool" || continue
        environ=${environ#/proc/}
        echo "${environ%/*}"
    done
}

# marked_outside GROUP: without those whom a signal to the group reaches. A second one could mean something else.
marked_outside() {
    for member in $(marked); do
        read -r stat <"/proc/$member/stat" || continue
        set -- "$1" ${stat##*) }
        if [ "$4" != "$1" ]; then echo "$member"; fi
    done 2>/dev/null
}

# pause: wait as short a time as this host's sleep can, and add it to `waited`, in tenths of a second.
pause() {
    if sleep 0.1; then waited=$((waited + 1)); else sleep 1 && waited=$((waited + 10)); fi
} 2>/dev/null

# end_agent: climb the ladder until the agent is gone. INT is the agent's alone, which ends its own tools on it; the
# other signals go to everything that belongs to the turn.
end_agent() {
    get agent
    group=${value%% *}
    for rung in $ladder KILL:50; do
        running agent || return 0
        strays=
        if [ "${rung%:*}" != INT ]; then strays=$(marked_outside "$group"); fi
        # It signs just before it leads its group.
        if ! kill -0 "-$group"; then strays="$strays $group"; fi
        kill "-${rung%:*}" "-$group" $strays
        await_agent "${rung#*:}"
    done
} 2>/dev/null

# await_agent TENTHS: until the agent is gone, at most so many tenths of a second.
await_agent() {
    waited=0
    while [ "$waited" -lt "$1" ] && running agent; do pause; done
}

# sweep: end what the agent left behind.
sweep() {
    press TERM 20 || press KILL 50
}

# press SIGNAL TENTHS: until no process of the turn is left. New ones may appear meanwhile, so KILL is repeated.
press() {
    waited=0
    while [ "$waited" -lt "$2" ]; do
        members=$(marked)
        [ "$members" ] || return 0
        if [ "$1" = KILL ] || [ "$waited" = 0 ]; then kill "-$1" $members; fi
        pause
    done
    return 1
} 2>/dev/null
