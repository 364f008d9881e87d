# The state of a spool, read and written by all its processes: small files of one line each.
#
#   turn        lease in seconds, boot id of the host, stop ladder
#   supervisor  pid and start time of the shell that runs the agent
#   watcher     pid and start time of the shell that guards the lease
#   agent       pid and start time of the agent, which leads a process group of the same number; or those of what contains
#               it, the word "contained", and, once it is to be terminated, pid and start time of init
#   heartbeat   changes as long as the turn is followed
#   reason      why the agent must be terminated: cancel, lease, lost, memory, processes or disk; blank: it must not
#   limits      of resident memory in pages, of processes, and of KiB in the workspace; "-": none
#   peak        most memory in KiB that the agent and its tools were seen to have together, and the least that the host
#               had to spare meanwhile, in percent; "-": unknown
#   end         exit code ("-" if unknown), reason, whether `events` contains the end marker, milliseconds of CPU and
#               KiB of memory ("-": unknown), and the seal
#
# and for a live turn:
#
#   said        lines of input so far, and their bytes; anything after them in `prompt` does not count
#   closed      whether no more will follow
#   writer      epoch and name of the last follower to attach, among those of the highest epoch; input from others
#               is ignored
#
# Next to them are `workspace` (its path), `prompt`, `events` (stdout), `err` (stderr), in a sandbox `out` (of which `events`
# is a copy) and `trial` (what it said when it was tried), `times`, `transfer` and `receiver` at the end, and, for an agent
# that keeps session files, `session_root` and `session_sizes`; the FIFOs `input` and `wake` of a live turn; and the
# directory `files`, with the command's own files, `stop` once the agent was asked to finish by itself, and `lost` once a
# watcher records that the turn is lost. A blank state file means "not yet".
#
# The agent's tools run as the user of these shells, and can write all of these files: what stands in them is a hint.
# Only the seal proves that a turn is over. It is known to the workers that follow the turn and to the shells that
# guard it, which receive it on their input and keep it in memory. It is written nowhere, and in no environment,
# until nothing of the turn is left to read it.
#
# Callers set `spool`, see `place`, and `seal`; where that is blank, any end is taken for the turn's. Those that call
# `works` set `stopped` to blank first.
#
# Everything is POSIX sh, which has no local variables. Any function may change these of state.sh: `value`, `glance`,
# `word`, `row`, `rung`, `name`, `stat`, `started_at`, `activity`, `signature`, `now`, `waited`; and these of
# processes.sh: `members`, `led`, `found`, `file`, `member`, `newest`, `limit`, `mark`. The last two identify the turn:
# nobody else may set them.

# place ROOT ID: sets `root` and `spool`. A leading ~ is our home directory on this host.
place() {
    root=$1
    case $root in
    "~/"*) root=$HOME/${root#??} ;;
    esac
    spool=$root/$2
}

# clear_way NAME: remove what is no regular file. A FIFO would block whoever opens it, and /dev/zero never ends.
clear_way() {
    [ -f "$spool/$1" ] || [ ! -e "$spool/$1" ] || rm -rf "$spool/$1"
}

# put NAME VALUE: overwrite in place and at full width, which needs no new block. A full disk cannot prevent it.
put() {
    clear_way "$1"
    printf '%-80s\n' "$2" 1<>"$spool/$1"
}

# get NAME: sets `value` to the words of a state file; blank if there is none. A shell reads byte by byte, and
# another process may be writing: a mixture of old and new is not read twice.
get() {
    value=
    [ -f "$spool/$1" ] && read -r value 2>/dev/null <"$spool/$1" || return
    while [ "$value" ]; do
        glance=$value
        value=
        read -r value 2>/dev/null <"$spool/$1" || return
        [ "$value" != "$glance" ] || return 0
    done
}

# are_numbers WORD...: to be asked before arithmetic with what stands in a file: some shells evaluate it, and would run
# commands of whoever wrote it. A leading zero makes an octal number, and "08" ends a shell; 64 bits have 18 digits.
are_numbers() {
    [ "$1" ] || return
    for word in "$@"; do
        case $word in
        "" | *[!0-9]* | 0?* | ???????????????????*) return 1 ;;
        esac
    done
}

# load_turn: fails without a turn, as in a spool that is being removed. Fields that no start can have written get the
# defaults.
load_turn() {
    read_turn
    turn_read=$?
    are_numbers "$lease" || lease=120 ladder="INT:50 TERM:50"
    for rung in $ladder; do are_numbers "${rung#*:}" || ladder="INT:50 TERM:50"; done
    [ "$turn_read" = 0 ] || return
    boot_id
    if [ "$boot" != "$turn_boot" ]; then forget_former_boot; fi
}

# read_turn: sets `lease`, `turn_boot` and `ladder`.
read_turn() {
    lease=
    [ -f "$spool/turn" ] && read -r lease turn_boot ladder 2>/dev/null <"$spool/turn"
}

# No process that signed before a reboot is alive, and start times count from a boot.
forget_former_boot() {
    for name in supervisor watcher agent; do put "$name" -; done
    printf '%s\n' "$lease $boot $ladder" 1<>"$spool/turn"
}

boot_id() {
    boot=-
    read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id
}

# ended: true if the turn is over.
ended() {
    get end
    case $value in
    "") return 1 ;;
    *"$seal") return 0 ;;
    esac
    return 1
}

# running NAME: true if the process that signed this state file is alive.
running() {
    get "$1"
    alive $value
}

# sign NAME WORD: write this very shell's pid and start time, and the word, if any. In a subshell, `$$` would be its
# parent's.
sign() {
    start_time self
    signature="${stat%% *} $started_at"
    put "$1" "$signature $2"
}

# alive PID START: the pid alone could have been reused by another process.
alive() {
    are_numbers "$1" "$2" && start_time "$1" && [ "$started_at" = "$2" ]
}

# ours PID START: true for a living shell that guards this turn: its command line names the spool. What a tool has
# signed in its place may be anybody. Remembers the last one.
ours() {
    alive "$@" || return
    if [ "$*" = "$known" ]; then return 0; fi
    tr '\0' '\n' <"/proc/$1/cmdline" | grep -qxF -e "$spool" || return
    known=$*
} 2>/dev/null

# start_time PID: sets `started_at`, in clock ticks since boot, and `activity`, T for a process that was stopped;
# fails for one that has exited, or a zombie.
start_time() {
    read_stat "$1" || return 1
    set -- ${stat##*) }
    case $1 in
    Z | X) return 1 ;;
    esac
    activity=$1
    shift 19
    started_at=$1
}

# read_stat PID: sets `stat`, in one line: processes choose their names, perhaps with newlines.
read_stat() {
    stat=
    while read -r row; do stat=$stat${stat:+ }$row; done 2>/dev/null <"/proc/$1/stat"
    [ "$stat" ]
}

# works PID START: true if the process is alive, and not killed here. One that was stopped is continued; if it is
# stopped again, or held by a debugger, the next look kills it.
works() {
    alive "$@" || return
    case $activity in
    [Tt]) ;;
    *)
        case $stopped in
        *"/$*/"*) stopped=${stopped%%"/$*/"*}${stopped#*"/$*/"} ;;
        esac
        return
        ;;
    esac
    case $stopped in
    *"/$*/"*) ;;
    *)
        stopped=$stopped/$*/
        kill -CONT "$1"
        return
        ;;
    esac
    kill -KILL "$1"
    return 1
} 2>/dev/null

# dismiss PID START: ask one of our shells to exit, even if it was stopped.
dismiss() {
    if alive "$@"; then
        kill -TERM "$1"
        kill -CONT "$1"
    fi
} 2>/dev/null

# uptime: sets `now` in seconds, by a monotonic clock; fails where there is none.
uptime() {
    read -r now 2>/dev/null </proc/uptime || return
    now=${now%%.*}
}

# want_end REASON: the first reason stays.
want_end() {
    get reason
    if [ -z "$value" ]; then put reason "$1"; fi
}

# finish CODE REASON: record, once, that the turn is over. What a sweep could not terminate may still run.
finish() {
    ended && return
    code=$1 why=$2
    get peak
    set -- $value
    # A tool may have written it, and the worker must be able to read the marker.
    are_numbers "$1" && [ "${#1}" -le 15 ] || set -- - "$2"
    are_numbers "$2" && [ "${#2}" -le 3 ] || set -- "$1" -
    peak=$1
    make_marker "$code" "$why" "${cpu_ms:--}" "$peak" "$2"
    clear_way events
    if printf '\n%s\n' "$marker" >>"$spool/events"; then marked=marked; else marked=unmarked; fi
    put end "$code $why $marked ${cpu_ms:--} $peak $seal"
}

# make_marker CODE REASON CPU MEMORY FREE: sets `marker`, the line that tells of the end.
make_marker() {
    marker="{\"runturn\":\"$seal\",\"exit\":\"$1\",\"reason\":\"$2\""
    marker="$marker,\"cpu_ms\":\"$3\",\"memory_kib\":\"$4\",\"free_percent\":\"$5\"}"
}
