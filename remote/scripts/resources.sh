# What a turn takes of its host: CPU time, memory and processes; and the limits of a contained turn. Once a second, a
# shell outside the namespace adds up init and all its descendants, as the kernel lists them. Between two looks, a turn may
# exceed its limits. Without limits, the watcher looks, at each of its ticks.
#
# `load_limits` sets `max_memory` (pages), `max_processes`, and `max_disk` (KiB, of the files in `workspace`); blank: no
# limit.

# load_limits: as recorded when the turn was started.
load_limits() {
    get limits
    set -- $value
    max_memory=${1#-} max_processes=${2#-} max_disk=${3#-}
    are_numbers "${max_memory:-0}" "${max_processes:-0}" "${max_disk:-0}" || max_memory= max_processes= max_disk=
}

# record_limits: of `max_kibibytes`, `max_processes` and `max_disk`; blank: no limit.
record_limits() {
    count_pages
    put limits "${max_memory:--} ${max_processes:--} ${max_disk:--}" && printf '%s\n' "$cwd" >"$spool/workspace"
}

# count_pages: sets `max_memory`, of `max_kibibytes`.
count_pages() {
    max_memory=
    if [ "$max_kibibytes" ]; then
        learn_page
        max_memory=$((max_kibibytes / (page / 1024)))
    fi
}

# keep_limits: until the turn is over, or over its limits. A shell that can start no process exits, after one more look,
# which starts none: that may be the work of this very turn.
keep_limits() {
    sleeper=
    trap 'wake; exit' TERM
    trap look EXIT
    list_private
    while [ -d "$spool" ] && ! ended; do
        nap 1
        look
        look_at_disk
    done
} 2>/dev/null

look() {
    agent_group
    [ "$outer" ] || return 0
    if [ "$inner" ]; then compare_with_limits; else weigh_all; fi
    note_extremes
}

# look_at_disk: every ten seconds, or every twenty times as long as it takes. The stop ladder follows.
look_at_disk() {
    [ "$max_disk" ] && [ "$outer" ] || return 0
    until_disk=$((${until_disk:-1} - 1))
    [ "$until_disk" -le 0 ] || return 0
    until_disk=10
    if uptime; then disk_since=$now; fi
    set -- $(du -sk "$workspace")
    if uptime; then until_disk=$((10 + 20 * (now - disk_since))); fi
    are_numbers "$1" && [ "$1" -gt "$max_disk" ] || return 0
    want_end disk
    kill -USR1 "${watcher_signature%% *}"
}

# compare_with_limits: what `inner` has descended to; the number first, which takes no process. Callers define
# `tell_excess LIMIT`.
compare_with_limits() {
    weigh_all
    if [ "$max_processes" ] && [ "$count" -gt "$max_processes" ]; then exceed processes; fi
    weigh_private
    # Where there is a scope, the kernel counts, and better.
    [ "$max_memory" ] && [ -z "$scope" ] && [ "$((pages + private))" -gt "$max_memory" ] || return 0
    weigh_shares
    if [ "$((pages + private))" -gt "$max_memory" ]; then exceed memory; fi
}

# exceed LIMIT: without the stop ladder, which leaves time to fill the host. To look may have taken seconds.
exceed() {
    alive "$inner" "$inner_since" || return 0
    tell_excess "$1"
    kill -KILL "$inner"
}

# note_peak: of an agent without limits, which may not be contained.
note_peak() {
    agent_group
    [ "$outer" ] || return
    weigh_all
    note_extremes
} 2>/dev/null

# weigh_all: sets `pages`, the resident memory of the agent and its tools, and `count`, their number. What an agent leaves
# behind is init's, if it is contained, else not counted.
weigh_all() {
    private=0
    found=$outer
    if [ "$inner" ]; then
        found=
        find_children "$inner"
    fi
    weigh
}

# note_extremes: record `pages`, if they are the most, and the host's free memory, if it is the least.
note_extremes() {
    if [ -z "$peak_pages" ]; then recall_extremes; fi
    read_free
    [ "$((pages + private))" -gt "$peak_pages" ] || [ "${free:-100}" -lt "${least_free:-100}" ] || return 0
    if [ "$((pages + private))" -gt "$peak_pages" ]; then peak_pages=$((pages + private)); fi
    if [ "${free:-100}" -lt "${least_free:-100}" ]; then least_free=$free; fi
    put peak "$((peak_pages * (page / 1024))) ${least_free:--}"
}

# recall_extremes: as an earlier watcher has recorded them.
recall_extremes() {
    learn_page
    get peak
    set -- $value
    peak_pages=0 least_free=
    if are_numbers "$1" && [ "${#1}" -le 12 ]; then peak_pages=$(($1 / (page / 1024))); fi
    if are_numbers "$2" && [ "${#2}" -le 3 ]; then least_free=$2; fi
}

learn_page() {
    [ "$page" ] || page=$(getconf PAGESIZE 2>/dev/null) || page=4096
}

# read_free: sets `free`, the share of the host's memory that is available, in percent; blank: unknown.
read_free() {
    free= total= available=
    while read -r name size rest; do
        case $name in
        MemTotal:) total=$size ;;
        MemAvailable:)
            available=$size
            break
            ;;
        esac
    done </proc/meminfo
    are_numbers "$total" "$available" && free=$((available * 100 / total))
}

# weigh: what is `found`, and its descendants.
weigh() {
    pages=0 count=0 weighed=
    while [ "$found" ]; do
        set -- $found
        found=
        for pid; do
            read -r size resident rest <"/proc/$pid/statm" || continue
            pages=$((pages + resident))
            count=$((count + 1))
            weighed="$weighed $pid"
            # Enough to know.
            if [ "$count" -gt "$((${max_processes:-1000} + 1000))" ]; then return; fi
            find_children "$pid"
        done
    done
}

# weigh_shares: sets `pages` anew, for what was `weighed`: of memory that processes share, each has its share. It takes
# the kernel longer, and Linux before 4.14 cannot tell.
weigh_shares() {
    learn_page
    shares=0
    for pid in $weighed; do
        while read -r name size rest; do
            if [ "$name" = Pss: ]; then
                shares=$((shares + size))
                break
            fi
        done <"/proc/$pid/smaps_rollup"
    done
    if [ "$shares" != 0 ]; then pages=$((shares / (page / 1024))); fi
}

# read_times: sets `cpu_ms`, the milliseconds of CPU that the agent and all it waited for have taken; blank: unknown.
# Called by the shell that waited for the agent: `times` in a subshell would know nothing of it.
read_times() {
    cpu_ms=
    clear_way times
    times >"$spool/times" && { read -r row && read -r user system; } <"$spool/times" || return
    count_ms "$user" && used=$counted && count_ms "$system" && cpu_ms=$((used + counted))
} 2>/dev/null

# count_ms TIME: sets `counted`, from 12m3.45s; shells print two to six decimals, after the locale's point.
count_ms() {
    minutes=${1%%m*} seconds=${1#*m}
    decimals=${seconds#*[.,]}
    seconds=${seconds%%[.,]*}
    decimals=${decimals%s}000
    decimals=${decimals%"${decimals#???}"}
    strip_zeros "$seconds"
    seconds=$stripped
    strip_zeros "$decimals"
    are_numbers "$minutes" "$seconds" "$stripped" && counted=$((minutes * 60000 + seconds * 1000 + stripped))
}

# bound_tasks: have `init` tell the kernel how many tasks may run, each thread being one: enough for any that stay within
# `max_processes`. For root, this limit does not hold. Outside of a user namespace, or before Linux 5.14, it would count
# all processes of the user.
bound_tasks() {
    [ "$max_processes" ] && makes_user_namespace && counts_by_namespace || return 0
    bound=$((16 * max_processes + 100))
    init='read -r _ _ users </proc/self/uid_map; if [ "$users" = 1 ]; then ulimit -u '"$bound || ulimit -p $bound"'
        fi 2>/dev/null; '"$init"
}

makes_user_namespace() {
    case $wall in
    *"/unshare' '--user'"* | *"/bwrap'"*) return 0 ;;
    esac
    return 1
}

counts_by_namespace() {
    read -r release </proc/sys/kernel/osrelease || return
    minor=${release#*.}
    are_numbers "${release%%.*}" "${minor%%[!0-9]*}" || return
    [ "$((${release%%.*} * 1000 + ${minor%%[!0-9]*}))" -ge 5014 ]
}

# strip_zeros NUMBER: sets `stripped`: a leading zero would make it octal.
strip_zeros() {
    stripped=$1
    while :; do
        case $stripped in
        0?*) stripped=${stripped#0} ;;
        *) break ;;
        esac
    done
}

# list_private: sets `known_devices`, of the file systems of this host; a sandbox has others. Only a sandbox's turn has the
# file `out`.
list_private() {
    known_devices=
    if [ "$max_memory" ] && [ -f "$spool/out" ]; then
        while read -r _ _ device _; do known_devices="$known_devices $device"; done </proc/self/mountinfo
    fi
}

# weigh_private: sets `private`, the pages that a sandbox's own file systems hold, which are memory. Their blocks are pages.
weigh_private() {
    private=0
    [ "$known_devices" ] || return 0
    places=
    while read -r _ _ device _ place rest; do
        case "$rest $known_devices " in
        *" - tmpfs "*" $device "*) ;;
        *" - tmpfs "*) places="$places /proc/$inner/root$place" ;;
        esac
    done <"/proc/$inner/mountinfo"
    [ "$places" ] || return 0
    set -- $(stat -f -c '%b %f' $places)
    while [ "$#" -ge 2 ]; do
        private=$((private + $1 - $2))
        shift 2
    done
}

# find_children PID: adds its children to `found`; with limits, those of all its threads.
find_children() {
    threads=$1
    if [ "$max_memory$max_processes" ]; then threads=*; fi
    # shellcheck disable=SC2086
    for file in "/proc/$1/task"/$threads/children; do
        row=
        read -r row <"$file"
        found="$found $row"
    done
}
