# Limits of a contained turn: memory, and number of processes. Once a second, a shell outside of what contains the turn
# adds up all that init has descended to; nothing inside can see it, hide from it or stop it. Between two looks, a turn
# may exceed its limits.
#
# `load_limits` sets `max_memory` (pages) and `max_processes`; blank: no limit.

# load_limits: as recorded when the turn was started.
load_limits() {
    get limits
    set -- $value
    max_memory=${1#-} max_processes=${2#-}
    are_numbers "${max_memory:-0}" "${max_processes:-0}" || max_memory= max_processes=
}

# record_limits: of `max_kibibytes` and `max_processes`; blank: no limit.
record_limits() {
    max_memory=-
    if [ "$max_kibibytes" ]; then
        page=$(getconf PAGESIZE 2>/dev/null) || page=4096
        max_memory=$((max_kibibytes * 1024 / page))
    fi
    put limits "$max_memory ${max_processes:--}"
}

# keep_limits: until the turn is over, or over its limits.
keep_limits() {
    sleeper=
    trap 'wake; exit' TERM
    while [ -d "$spool" ] && ! ended; do
        nap 1
        agent_group
        [ "$inner" ] || continue
        weigh "$inner"
        if [ "$max_memory" ] && [ "$pages" -gt "$max_memory" ]; then
            exceed memory
        elif [ "$max_processes" ] && [ "$count" -gt "$max_processes" ]; then
            exceed processes
        fi
    done
} 2>/dev/null

# exceed LIMIT: without the stop ladder, which leaves time to fill the host.
exceed() {
    want_end "$1"
    kill -KILL "$inner"
}

# weigh INIT: sets `pages`, the resident memory of its descendants, and `count`, their number. Orphans are init's.
weigh() {
    pages=0 count=0 found=
    find_children "$1"
    while [ "$found" ]; do
        set -- $found
        found=
        for pid; do
            read -r size resident rest <"/proc/$pid/statm" || continue
            pages=$((pages + resident))
            count=$((count + 1))
            # A fork bomb has been seen by now.
            if [ "$max_processes" ] && [ "$count" -gt "$((max_processes + 1000))" ]; then return; fi
            find_children "$pid"
        done
    done
}

# find_children PID: adds the children of all its threads to `found`.
find_children() {
    for file in "/proc/$1/task"/*/children; do
        row=
        read -r row <"$file"
        found="$found $row"
    done
}
