# Containment: the agent in a PID namespace of its own. Whatever it starts, wherever that goes and however it hides, ends
# with the namespace: nothing has to be found. Three processes, each the child of the one before:
#
#   wall       the host's own program that makes the namespace; it signs `agent`, with a third word
#   init       a shell, the first process of the namespace; once the agent has exited, it ends the rest, and then itself
#   agent      leads a process session, and a group
#
# Callers set `isolation`: none; namespace; or auto, for a namespace where that changes nothing for the agent. `wall` is
# then the wall's command line; blank: the agent is not contained.

# As text, since the agent's environment is in place when it runs. Without a namespace, `kill -1` would reach all that
# we may signal. Signals from outside do nothing to an init that has no handlers, except KILL and STOP.
init='[ "$$" = 1 ] || exit 126; "$@"; code=$?; kill -TERM -1; waited=0; while [ "$waited" -lt 20 ] && kill -0 -1; do'
init="$init if sleep 0.1; then waited=\$((waited + 1)); else sleep 1; waited=\$((waited + 10)); fi; done 2>/dev/null"
init="$init; exit \$code"

# choose_wall: sets `wall`. Callers define `refuse CODE DETAIL`.
choose_wall() {
    wall=
    case $isolation in
    none) ;;
    auto) try_wall unshare "$plain_unshare" || wall= ;;
    *) find_wall || refuse isolation_unavailable "$said" ;;
    esac
}

# tell_wall ISOLATION: print the program that makes the namespace here; a blank line if agents get none.
tell_wall() {
    isolation=$1
    choose_wall
    printf '%s\n' "${wall%% *}"
}

# A user namespace hides who owns the files of others: sudo does not work there, nor does ssh if it includes files of
# root's. So only root, which needs none, is contained without being asked.
plain_unshare="--mount --propagation slave --pid --fork --kill-child --mount-proc"

find_wall() {
    try_wall unshare "$plain_unshare" ||
        try_wall unshare "--user --map-current-user $plain_unshare" ||
        try_wall bwrap "--unshare-pid --as-pid-1 --die-with-parent --dev-bind / / --proc /proc --"
}

# try_wall PROGRAM OPTIONS: true if it makes a namespace with its own /proc; else `said` is why not.
try_wall() {
    said="no $1 is installed"
    locate "$1"
    [ "$located" != "$1" ] || return
    wall="$located $2"
    said=$($wall sh -c '[ "$$" = 1 ] && read -r pid rest </proc/self/stat && [ "$pid" = 1 ]' 2>&1) || return
    said="the kernel does not tell the children of a process"
    [ -r "/proc/$$/task/$$/children" ]
}

# locate PROGRAM: sets `located` to where the PATH finds it; the agent's PATH may not. `command -v` would need a
# process for its answer.
locate() {
    located=$1
    rest=$PATH:
    while [ "$rest" ]; do
        directory=${rest%%:*}
        rest=${rest#*:}
        if [ -f "$directory/$1" ] && [ -x "$directory/$1" ]; then located=$directory/$1 rest=; fi
    done
}

# look_inside WALL: sets `inner`, the pid of init, and `group`, the agent's; both as they are numbered outside, and blank
# if there is none.
look_inside() {
    first_child "$1"
    inner=$child
    first_child "$inner"
    group=$child
}

# first_child PID: sets `child`. Init adopts what others leave behind, but the agent is its first child.
first_child() {
    child=
    if [ "$1" ]; then read -r child rest <"/proc/$1/task/$1/children"; fi
} 2>/dev/null
