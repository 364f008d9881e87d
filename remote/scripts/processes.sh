# Finding and terminating the processes of a turn, wherever they went: agents run their tool shells in separate
# process sessions, so a process group alone misses them. All of them inherit two marks: RUNTURN_SPOOL in their
# environment, and a soft limit of resident memory (Linux enforces none) whose size identifies the turn. The second
# survives `env -i`, and stands in the same file as parent, group and session.
#
# "kill -NAME -GROUP" is the only form that dash, bash and busybox all accept for a group.

# learn_limit: sets `limit`, in KiB, and `mark`, the same in bytes; blank without arithmetic of 64 bits. The pid and
# start time of the supervisor make it unique; programs that heed the limit find it larger than any memory.
learn_limit() {
    mark=
    get supervisor
    set -- $value
    are_numbers "$1" "$2" || return
    # A tool may have signed for another turn's: with that mark, all of it would be found here.
    if [ "$supervisor_signature" != "$1 $2" ] && alive "$1" "$2"; then ours "$1" "$2" || return; fi
    limit=$((4503599627370496 + $1 * 1073741824 + $2 % 1073741824))
    mark=$((limit * 1024))
    if [ "${#mark}" != 19 ]; then mark=; fi
}

# carry_limit: all that this shell starts from now on is the turn's.
carry_limit() {
    if [ "$mark" ]; then ulimit -S -m "$limit"; fi
} 2>/dev/null

# shed_limit: drop the limit inherited from an outer turn, of which the worker that started this shell is part.
shed_limit() {
    ulimit -S -m unlimited
} 2>/dev/null

# find_members: sets `members` to the pids of all processes of this turn, except those that are `spared`. A process
# may have handed over to a child since the list of files was made, so newer ones are checked, too: no chain of
# short-lived processes escapes. Takes one process if there are none and grep supports -z.
find_members() {
    members=
    led=
    if [ -z "$mark" ]; then learn_limit; fi
    newest_pid
    checked=$newest
    if has_traces; then
        find_environments
        for file in $found; do add_member "$file"; done
        newest_pid
        checked=$newest
        find_relatives
    fi
    check_newer
} 2>/dev/null

# has_traces: false if no process shows either mark. True for more: other turns' spools may begin like this one's.
has_traces() {
    set -- /proc/[0-9]*/environ /proc/[0-9]*/stat
    found=$(RUNTURN_SPOOL=$spool LC_ALL=C grep -lszF -e "RUNTURN_SPOOL=$spool" ${mark:+-e " $mark "} /proc/self/environ "$@")
    [ "$found" != /proc/self/environ ]
}

# add_member FILE: by one of its files in /proc.
add_member() {
    set -- "${1#/proc/}"
    set -- "${1%%/*}"
    case " 1 $members " in
    *" $1 "*) return 1 ;;
    esac
    spared "$1" && return 1
    members="$members $1"
    led=$led${led:+|}$1
}

# find_environments: sets `found`. If grep supports -z, it finds itself, first of all. The list of files is expanded
# before grep starts, or grep would be in it once more.
find_environments() {
    set -- /proc/[0-9]*/environ
    found=$(RUNTURN_SPOOL=$spool grep -lszxF "RUNTURN_SPOOL=$spool" /proc/self/environ "$@")
    case $found in
    /proc/self/environ*) found=${found#/proc/self/environ} ;;
    *) find_one_by_one ;;
    esac
}

# find_relatives: add whatever carries the limit, children of members, and groups and sessions that members lead,
# until there are no more. A process chooses its name, of 15 bytes: only longer rows of numbers are to be trusted.
find_relatives() {
    set -- /proc/[0-9]*/stat
    added=yes
    while [ "$added" ]; do
        added=
        traits=
        if [ "$mark" ]; then traits="( -?[0-9]+){21} $mark"; fi
        if [ "$led" ]; then traits="$traits${mark:+|}( [0-9]+){0,2} ($led)"; fi
        [ "$traits" ] || return 0
        for file in $(LC_ALL=C grep -lsE "\\) [^ZXx]($traits)( -?[0-9]+){20,}\$" "$@"); do
            if add_member "$file"; then added=yes; fi
        done
    done
}

# newest_pid: sets `newest`, the last pid that was given out; fails where that is hidden.
newest_pid() {
    newest=
    read -r newest </proc/loadavg
    newest=${newest##* }
    case $newest in
    "" | *[!0-9]*) return 1 ;;
    esac
}

# check_newer: pids are given out in ascending order, so the next process of a chain is always ahead of us.
check_newer() {
    budget=2000
    while newest_pid && [ "$checked" != "$newest" ]; do
        # They have started again from the bottom.
        if [ "$checked" -gt "$newest" ]; then checked=1; fi
        while [ "$checked" -lt "$newest" ]; do
            checked=$((checked + 1))
            budget=$((budget - 1))
            [ "$budget" -gt 0 ] || return 0
            if is_relative "$checked" && is_process "$checked"; then
                if add_member "$checked" && [ "$freezing" ]; then kill -STOP "$checked"; fi
            fi
        done
    done
}

# is_relative PID: true if it carries the limit, or is a child of a member, or in a group or session of one.
is_relative() {
    read_stat "$1" || return
    set -- ${stat##*) }
    case $1 in
    Z | X | x) return 1 ;;
    esac
    case " $* " in
    *" ${mark:-none} "*) return 0 ;;
    esac
    for number in "$2" "$3" "$4"; do
        case " $members " in
        *" ${number:-none} "*) return 0 ;;
        esac
    done
    return 1
}

# is_process PID: false for a thread, which has a pid as well.
is_process() {
    while read -r word number; do
        if [ "$word" = Tgid: ]; then break; fi
    done <"/proc/$1/status"
    [ "$number" = "$1" ]
}

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
        read_stat "$member" || continue
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

# agent_group: sets `outer`, the pid of the agent or of the wall that contains it, and `outer_since`; and `group`, that of
# the agent and of its process group, and `group_since`; blank if there is none.
agent_group() {
    inner= group=
    find_outer || return 0
    group=$outer group_since=$outer_since
    if [ "$wall" ]; then look_inside; fi
} 2>/dev/null

# find_outer: the child of the supervisor that carries the turn's mark. What stands in `agent`, a tool may have written; it
# counts if there is no supervisor any more, and only for a process that carries the mark. 1 would mean all processes.
find_outer() {
    outer= children=
    if [ "$mark" ] && [ "$supervisor_signature" ] && alive $supervisor_signature; then
        children_of "${supervisor_signature%% *}"
    fi
    if [ -z "$children" ]; then
        get agent
        alive $value || return
        children=${value%% *}
    fi
    for child in $children; do
        if start_time "$child" && carries_mark && [ "$child" != 1 ]; then
            outer=$child outer_since=$started_at
            return
        fi
    done
    return 1
}

# children_of PID: sets `children`, of its main thread.
children_of() {
    children=
    read -r children <"/proc/$1/task/$1/children"
} 2>/dev/null

# carries_mark: true if the process whose `stat` was read carries the limit; where there is none, all do.
carries_mark() {
    case " $stat " in
    *" $mark "*) return 0 ;;
    esac
    [ -z "$mark" ]
}

# freeze: stop all members until a search finds no new one. Then none is left that could start another.
freeze() {
    frozen=
    rounds=0
    freezing=yes
    while [ "$rounds" -lt 50 ]; do
        rounds=$((rounds + 1))
        find_members
        new=
        for member in $members; do
            case " $frozen " in
            *" $member "*) ;;
            *) new="$new $member" ;;
            esac
        done
        [ "$new" ] || break
        kill -STOP $new
        frozen="$frozen$new"
    done
    freezing=
} 2>/dev/null

# end_agent: climb the stop ladder until the agent has exited. INT goes to the agent alone, which stops its own
# tools; the other signals go to everything that belongs to the turn. CONT, because a stopped process ignores all
# but KILL.
end_agent() {
    agent_group
    if [ -z "$group" ]; then
        sweep
        return
    fi
    note_inner
    target=$outer target_since=$outer_since
    for rung in $ladder KILL:50; do
        alive "$target" "$target_since" || return 0
        agent_group
        strays=
        case $rung in
        INT:*) ;;
        KILL:*) find_victims ;;
        *) [ "$wall" ] || find_strays "$group" ;;
        esac
        # The agent signs just before it becomes a group leader.
        if [ "$group" ]; then
            if kill -0 "-$group"; then
                strays="-$group $strays"
            elif alive "$group" "$group_since"; then
                strays="$group $strays"
            fi
        fi
        kill "-${rung%:*}" $strays
        kill -CONT $strays
        await_agent "${rung#*:}"
    done
} 2>/dev/null

# find_victims: sets `strays` for KILL. What contains an agent takes it along.
find_victims() {
    if [ -z "$wall" ]; then freeze && strays=$members; fi
    strays="$strays $outer"
    if [ "$inner" ] && alive "$inner" "$inner_since"; then strays="$strays $inner"; fi
}

# await_agent TENTHS: wait until the agent has exited, at most that many tenths of a second.
await_agent() {
    waited=0
    while [ "$waited" -lt "$1" ] && alive "$target" "$target_since"; do pause; done
}

# within SECONDS SINCE: true if no more have passed, or nobody can tell.
within() {
    if [ -z "$2" ] || ! uptime; then return 0; fi
    [ "$((now - $2))" -lt "$1" ]
}

# sweep: terminate what the agent left behind.
sweep() {
    press TERM 20 10 || press KILL 50 30
}

# press SIGNAL TENTHS SECONDS: signal until no process of the turn is left, for so many tenths of a second of waiting,
# or for so many seconds in all: on a large host, most of them go into searches, and the watcher gives a supervisor one
# minute. New processes may appear, so KILL is repeated, and finds all of them frozen. A process that is executing
# another program briefly shows no environment: two searches in a row must find nothing.
press() {
    waited=0 looks=0 pressed_at=
    if uptime; then pressed_at=$now; fi
    while [ "$waited" -lt "$2" ] && within "$3" "$pressed_at"; do
        if [ "$1" = KILL ]; then freeze; else find_members; fi
        if [ -z "$members" ]; then
            looks=$((looks + 1))
            if [ "$looks" = 2 ]; then return 0; fi
            continue
        fi
        looks=0
        if [ "$1" = KILL ] || [ "$waited" = 0 ]; then
            kill "-$1" $members
            kill -CONT $members
        fi
        pause
    done
    return 1
} 2>/dev/null
