# The state of a spool, read and written by everybody who holds it: small files of one line each.
#
#   turn        nonce of the end marker, lease in seconds, boot id of the host, ladder of signals
#   supervisor  pid and start time of the shell that runs the agent
#   watcher     pid and start time of the shell that holds the lease
#   agent       pid and start time of the agent, which leads a process group of the same number
#   heartbeat   changes as long as somebody follows
#   reason      why the agent is to end: cancel, lease or lost; blank while nobody wants it to end
#   end         exit code ("-" if unknown), reason, and whether the end marker stands in `events`
#
# and of a live turn:
#
#   said        how many lines its agent was told, and how many bytes they are; what `prompt` holds behind is none
#   closed      whether no more will follow
#   writer      epoch and name of the follower who attached last among those of the highest epoch: what another one
#               says is not for the agent
#
# Beside them lie `prompt`, `events` (stdout), `err` (stderr), and, for an agent that keeps session files,
# `session_root` and `session_sizes`; the FIFOs `input` and `wake` of a live turn; `stop` once the agent is asked to end
# by itself; and the command's own files. A blank state file means "not yet".
#
# Callers set `spool`, see `place`. Everything is POSIX sh, which has no local variables: `value`, `stat` and `waited` are anybody's.

# place ROOT ID: set `root` and `spool`. A leading ~ is the home directory of whoever we are on this host.
place() {
    root=$1
    case $root in
    "~/"*) root=$HOME/${root#??} ;;
    esac
    spool=$root/$2
}

# put NAME VALUE: overwrite in place and at full width, which needs no new block. A full disk cannot stop it.
put() {
    printf '%-80s\n' "$2" 1<>"$spool/$1"
}

# get NAME: the words of a state file in `value`; blank if there is none. A shell reads byte by byte, and somebody may
# write meanwhile: what was half the one and half the other is not read twice.
get() {
    value=
    read -r value 2>/dev/null <"$spool/$1" || return
    while [ "$value" ]; do
        glance=$value
        value=
        read -r value 2>/dev/null <"$spool/$1" || return
        [ "$value" != "$glance" ] || return 0
    done
}

# load_turn: fails without a turn, as in a spool that is just being removed.
load_turn() {
    read -r turn_nonce lease turn_boot ladder 2>/dev/null <"$spool/turn" || return
    boot_id
    if [ "$boot" != "$turn_boot" ]; then forget_former_boot; fi
}

# Nobody who signed before a reboot lives, and start times count from a boot.
forget_former_boot() {
    for name in supervisor watcher agent; do put "$name" -; done
    printf '%s\n' "$turn_nonce $lease $boot $ladder" 1<>"$spool/turn"
}

boot_id() {
    boot=-
    read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id
}

ended() {
    get end
    [ "$value" ]
}

# running NAME: is the process that signed this state file still there?
running() {
    get "$1"
    alive $value
}

# sign NAME: put this very shell's pid and start time there. `$$` would be a subshell's parent.
sign() {
    start_time self
    signature="${stat%% *} $started_at"
    put "$1" "$signature"
}

# alive PID START: by its number alone, a process could be another one that was given the number since.
alive() {
    [ "$1" ] && start_time "$1" && [ "$started_at" = "$2" ]
}

# start_time PID: `started_at`, in clock ticks since boot; fails for a process that is gone, or a zombie.
start_time() {
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${stat##*) }
    case $1 in
    Z | X) return 1 ;;
    esac
    shift 19
    started_at=$1
}

# uptime: `now` in seconds, by a clock that only goes forward; fails where there is none.
uptime() {
    read -r now 2>/dev/null </proc/uptime || return
    now=${now%%.*}
}

# want_end REASON: the first reason stays.
want_end() {
    get reason
    if [ -z "$value" ]; then put reason "$1"; fi
}

# finish CODE REASON: nothing of the agent runs any more; say so, once.
finish() {
    ended && return
    marker="{\"runturn\":\"$turn_nonce\",\"exit\":\"$1\",\"reason\":\"$2\"}"
    if printf '\n%s\n' "$marker" >>"$spool/events"; then marked=marked; else marked=unmarked; fi
    put end "$1 $2 $marked"
}
