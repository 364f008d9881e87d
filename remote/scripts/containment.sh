# Containment: the agent in a PID namespace of its own. Whatever it starts, wherever that goes and however it hides, ends
# with the namespace: nothing has to be found. Three processes, each the child of the one before:
#
#   wall       the host's own program that makes the namespace; `launch` signs `agent` for it, with a third word
#   init       a shell, the first process of the namespace; once the agent has exited, it ends the rest, and then itself
#   agent      leads a process session, and a group
#
# In a sandbox, it also sees none of the host's files but the system, its workspace, its own state, and what the operator
# adds. It runs as its user, without the privileges of root, and without setuid programs.
#
# Callers set `isolation`: none, namespace or sandbox.
# For a sandbox, also `cwd`, `spool`, `network` (none, or full), `agent_path` (blank: the host's PATH), `agent_program`,
# `max_kibibytes` and `session_*`, and, a line each, `agent_state` (of the agent's own files, below the home),
# `shown_paths` and `writable_paths` (the operator's, absolute or below ~/). They define `refuse CODE DETAIL`.

# Variables that the loader and the C library obey in every program: ld.so(8), iconv_open(3), locale(7). With one of them,
# the program that makes the wall would run code of the agent's, or write files, outside.
loader_variables="LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_ORIGIN_PATH LD_DEBUG LD_DEBUG_OUTPUT LD_PROFILE LD_PROFILE_OUTPUT"
loader_variables="$loader_variables LD_TRACE_LOADED_OBJECTS LD_VERBOSE LD_WARN LD_SHOW_AUXV LD_BIND_NOW LD_DYNAMIC_WEAK"
loader_variables="$loader_variables LD_HWCAP_MASK GLIBC_TUNABLES GCONV_PATH LOCPATH NLSPATH"

# hold_back: rename them until `init` gives them back, in the namespace. As text, since the agent's environment may
# contain any name, such as those of our variables.
held=
given_back=
for name in $loader_variables; do
    held="$held [ \"\${$name+set}\" ] && export RUNTURN_HELD_$name=\"\$$name\" && unset -v $name;"
    given_back="$given_back [ \"\${RUNTURN_HELD_$name+set}\" ] && export $name=\"\$RUNTURN_HELD_$name\""
    given_back="$given_back && unset -v RUNTURN_HELD_$name;"
done
eval "hold_back() { $held :; }"

# As text, since the agent's environment is in place when it runs. Without a namespace, `kill -1` would reach all that
# we may signal. Signals from outside do nothing to an init that has no handlers, except KILL and STOP.
init='[ "$$" = 1 ] || exit 126;'"$given_back"' "$@"; code=$?; exec 2>/dev/null; kill -TERM -1; waited=0; while [ "$waited" -lt 20 ]'
init="$init"' && kill -0 -1; do if sleep 0.1; then waited=$((waited + 1)); else sleep 1; waited=$((waited + 10)); fi'
init="$init"'; done; exit "$code"'

plain_unshare="--mount --propagation slave --pid --fork --kill-child --mount-proc"
plain_bwrap="--unshare-pid --as-pid-1 --die-with-parent"

# choose_wall: sets `wall`, the quoted words of the wall's command line, and `container`, its program; blank: the agent is
# not contained. With limits, a systemd scope is around it where there can be one: `scope`, whose command comes first.
# A sandbox has yet to be tried, see `try_sandbox`: `untried` is its wall, as furnished; otherwise blank.
choose_wall() {
    wall= untried=
    refusal=isolation_unavailable
    case $isolation in
    none) ;;
    namespace) find_wall || refuse "$refusal" "$said" ;;
    sandbox) find_sandbox || refuse "$refusal" "$said" ;;
    esac
    container=${wall:+$located}
    scope=
    if [ "$max_kibibytes$max_processes$max_cpu_percent" ]; then add_scope; fi
}

# tell_wall: for no agent in particular (`cwd` is blank), print the program that contains agents here, blank if they are
# not contained; and in another line why systemd does not keep their limits, blank if it does.
tell_wall() {
    id=doctor
    choose_wall
    require_sandbox
    max_kibibytes=1048576 max_processes=1000 max_cpu_percent=100
    if find_manager && try_scope; then said=; fi
    printf '%s\n' "$container" "$(printf %s "$said" | tr '\n' ' ')"
}

find_wall() {
    can_count || return
    try_wall unshare "$plain_unshare" && return
    try_wall unshare "--user --map-current-user $plain_unshare" && return
    why=$said
    try_wall bwrap "$plain_bwrap --dev-bind / / --proc /proc --" && return
    said="$why; $said"
    return 1
}

# find_sandbox: with its capabilities, root would break out.
find_sandbox() {
    can_count && lists_children || return
    locate_wall bwrap "$plain_bwrap --unshare-ipc" || return
    if is_root; then add_words --unshare-user --cap-drop ALL; fi
    if [ "$network" = none ]; then add_words --unshare-net; fi
    furnish || return
    untried=$wall
    add_words --ro-bind "$spool/files" "$spool/files" --
}

# require_sandbox: refuse if the sandbox that was chosen cannot be made.
require_sandbox() {
    if [ "$untried" ] && ! said=$(try_sandbox 2>&1); then refuse_sandbox; fi
}

# try_sandbox: as furnished, so that what bwrap cannot do is not taken for a fault of the agent.
try_sandbox() {
    hold_back
    eval "$untried -- $first_process"
}

refuse_sandbox() {
    refuse isolation_unavailable "${said:-$container makes no namespace, and does not say why}$remedy"
}

# is_root: `id` would be one more process.
is_root() {
    while read -r word user rest; do
        if [ "$word" = Uid: ]; then break; fi
    done <"/proc/$$/status"
    [ "$user" = 0 ]
}

# can_count: what is in the namespace is told by the turn's mark, a number of 64 bits.
can_count() {
    said="its sh counts with 32 bits only; make sh another shell, such as dash"
    [ "$((4503599627370496 * 1024))" = 4611686018427387904 ]
}

# try_wall PROGRAM OPTIONS: true if it makes a namespace with its own /proc; else `said` is why not.
try_wall() {
    locate_wall "$1" "$2" && prove_wall
}

# locate_wall PROGRAM OPTIONS: begin `wall` with them.
locate_wall() {
    said="no $1 is installed; install it, or run agents there without this level of isolation"
    locate "$1"
    [ "$located" != "$1" ] || return
    wall=
    add_words "$located" $2
}

# first_process: a command that succeeds as the first of a namespace that has its own /proc.
first_process='sh -c '\''[ "$$" = 1 ] && read -r pid rest </proc/self/stat && [ "$pid" = 1 ]'\'
remedy="; runturn doctor says how to allow namespaces"

prove_wall() {
    if ! said=$(hold_back; eval "$wall $first_process" 2>&1); then
        said="${said:-$located makes no namespace, and does not say why}$remedy"
        return 1
    fi
    lists_children
}

# lists_children: a wall's init is found as its child.
lists_children() {
    said="the kernel does not list the children of a process: it lacks CONFIG_PROC_CHILDREN"
    [ -r "/proc/$$/task/$$/children" ]
}

# furnish: add to `wall` what the sandbox shows. bwrap obeys its options in their order.
furnish() {
    resolve "$HOME" && home=$real || home=
    if [ "$cwd" ]; then check_cwd || return; fi
    for path in $system; do
        if [ -d "$path" ]; then add_words --ro-bind "$path" "$path"; fi
    done
    limit_size
    add_words --dev /dev --proc /proc --setenv TMPDIR /tmp
    for path in /run /var/tmp /tmp "$HOME"; do show_empty "$path"; done
    hide_real_home
    hide_turns
    if [ "$network" = full ]; then show_resolver; fi
    for name in "$agent_program" node; do
        find_program "$name" || continue
        if [ "$path" != "$real" ]; then add_words --symlink "$real" "$path"; fi
        add_words --ro-bind "$shown" "$shown"
    done
    if [ "$session_patterns" ]; then show_sessions; fi
    if [ "$cwd" ]; then show_repository; fi
    show_paths || return
    if [ "$cwd" ]; then add_words --bind "$cwd" "$cwd" --chdir "$cwd"; fi
    # A `.git` of the agent's would lead git to settings of its making, also outside.
    if [ "$store" ]; then add_words --ro-bind "$cwd/.git" "$cwd/.git"; fi
}

# show_paths: the agent's own, and the operator's.
show_paths() {
    missing=
    set -f
    IFS='
'
    for path in $agent_state; do
        if [ -e "$HOME/$path" ]; then show_path --bind "$HOME/$path"; fi
    done
    for path in $shown_paths; do show_path --ro-bind "$path"; done
    for path in $writable_paths; do show_path --bind "$path"; done
    unset -v IFS
    set +f
    said="of sandbox_paths, there is no $missing; create it, or correct the setting"
    [ -z "$missing" ]
}

# limit_size: sets `size`, in bytes, of each place that is empty at first and kept in memory; blank: the kernel's limit.
limit_size() {
    size=
    if [ "$max_kibibytes" ] && "$located" --help 2>&1 | grep -q -e "--size"; then size=$((max_kibibytes * 1024)); fi
}

# show_empty DIRECTORY
show_empty() {
    add_words ${size:+--size "$size"} --tmpfs "$1"
}

# hide_real_home: it may be in what the sandbox shows of the system, and the home a link to it.
hide_real_home() {
    if [ "$home" ] && [ "$home" != "${HOME%/}/" ]; then show_empty "${home%/}"; fi
}

# hide_turns: the spools and workspaces of others, if they lie in what is shown of the system.
hide_turns() {
    for path in $system; do
        case $spools in
        "$path"/*) for place in "${spools%/}" "${spools%/*/}/workspaces"; do show_empty "$place"; done ;;
        esac
    done
}

# show_resolver: systemd keeps it in /run.
show_resolver() {
    [ -L /etc/resolv.conf ] && path=$(readlink -f /etc/resolv.conf) || return 0
    case $path in
    /run/*) add_words --ro-bind-try "$path" "$path" ;;
    esac
}

# show_path OPTION PATH
show_path() {
    case $2 in
    "~/"*) set -- "$1" "$HOME/${2#??}" ;;
    esac
    if [ -e "$2" ]; then add_words "$1" "$2" "$2"; else missing=$2; fi
}

# show_sessions: in a directory that exists, so that they outlive the sandbox.
show_sessions() {
    locate_sessions
    path=$session_root${session_directory:+/$session_directory}
    # An adapter that names no directory of its own would show the home.
    [ "${path%/}" != "${HOME%/}" ] || return 0
    [ -d "$path" ] || (umask 077 && mkdir -p "$path")
    add_words --bind "$path" "$path"
}

# Not /var: it has logs, mail, databases, and perhaps spools.
system="/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /opt /nix /gnu /snap /sys"

# check_cwd: a workspace is shown, and writable, whoever has named it. So it must be, or contain, or lie in nothing that a
# sandbox hides or protects; workspaces that turns bring lie next to the spools.
check_cwd() {
    refusal=workspace_missing said=$cwd
    resolve "$cwd" && workspace=$real || return
    refusal=workspace_not_isolated
    said="$cwd contains the home directory, which a sandbox hides"
    case $home in
    "$workspace"*) return 1 ;;
    esac
    said="$cwd contains the spools of turns, or is one"
    resolve "${spool%/*}" && spools=$real || spools=${spool%/*}/
    case $spools in
    "$workspace"*) return 1 ;;
    esac
    case $workspace in
    "$spools"*) return 1 ;;
    esac
    said="$cwd belongs to the system, or to what a sandbox hides"
    for path in $protected; do
        case $workspace in
        "$path"/*) return 1 ;;
        esac
    done
    case $workspace in
    "${spools%/*/}/workspaces/"*) ;;
    "$home".*) return 1 ;;
    esac
}

protected="/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /sys /run /dev /proc /boot"

# find_program NAME: sets `path`, `real`, the same without symbolic links, and `shown`, what must be seen of it: the
# program alone, or all packages that npm has put next to it. Fails for none, and for a part of the system.
find_program() {
    case $1 in
    /*) path=$1 ;;
    */* | "") return 1 ;;
    *)
        search_path "$1" || return
        path=$directory/$1
        ;;
    esac
    [ -e "$path" ] || return
    real=$path
    if ! is_plain "$path"; then real=$(readlink -f -- "$path") || return; fi
    shown=$real
    case $real in
    */node_modules/*) shown=${real%%/node_modules/*}/node_modules ;;
    esac
    for place in $system; do
        case $path:$real in
        "$place"/*:"$place"/*) return 1 ;;
        esac
    done
}

# add_words WORD...: to `wall`, each of them quoted.
add_words() {
    for word in "$@"; do
        wall="$wall '"
        while :; do
            case $word in
            *\'*) wall="$wall${word%%\'*}'\\''" word=${word#*\'} ;;
            *) break ;;
            esac
        done
        wall="$wall$word'"
    done
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

# look_inside: sets `inner`, the pid of init, and `group`, the agent's, as they are numbered outside, with their start
# times; both blank if there is none. The wall is `outer`.
look_inside() {
    inner= group=
    first_child "$outer" || return 0
    inner=$child inner_since=$started_at
    first_child "$inner" || return 0
    group=$child group_since=$started_at
}

# note_inner: for the supervisor, which cannot look inside a wall that was killed.
note_inner() {
    if [ "$inner" ]; then put agent "$outer $outer_since contained $inner $inner_since"; fi
}

# await_inner: after a wall was killed, until what it contained is gone, too; fails if nobody noted it, or it stays.
await_inner() {
    get agent
    set -- $value
    [ "$5" ] || return
    waited=0
    while alive "$4" "$5"; do
        [ "$waited" -lt 50 ] || return
        pause
    done
}

# first_child PID: sets `child` and `started_at`. Init adopts what others leave behind, but the agent is its first child.
first_child() {
    children_of "$1"
    child=${children%% *}
    [ "$child" ] && start_time "$child"
} 2>/dev/null
