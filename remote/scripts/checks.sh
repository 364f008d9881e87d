# Conditions for a turn to start on a host. Callers define `refuse CODE DETAIL`.

# require_tools MORE...
require_tools() {
    for tool in setsid head mktemp mkdir mv rm tail grep tr wc sleep date "$@"; do
        command -v "$tool" >/dev/null || refuse tool_missing "$tool"
    done
    # Needed to identify and find processes; macOS does not have it.
    [ -r "/proc/$$/stat" ] || refuse tool_missing "/proc of Linux"
}

# check_workspace PATH ROOTS: ROOTS, one per line, are the directories that workspaces must be in; blank: anywhere.
check_workspace() {
    [ -e "$1" ] || refuse workspace_missing "$1"
    [ -d "$1" ] || refuse workspace_not_directory "$1"
    [ -x "$1" ] || refuse workspace_not_enterable "$1"
    if [ "$2" ]; then check_roots "$1" "$2"; fi
}

# check_roots PATH ROOTS: by real paths.
check_roots() {
    resolve "$1"
    printf '%s\n' "$2" | lies_below "$real" || refuse workspace_not_allowed "$1"
}

# lies_below REAL_PATH: true if it is one of the directories on the input, or in one of them.
lies_below() {
    while IFS= read -r allowed; do
        case $allowed in
        "~/"*) allowed=$HOME/${allowed#??} ;;
        esac
        allowed=$(real_path "$allowed") || continue
        case $1 in
        "$allowed"*) return 0 ;;
        esac
    done
    return 1
}

# resolve DIRECTORY: sets `real` as real_path prints it, and needs no process for it where there are no links.
resolve() {
    if is_plain "$1" && [ -d "$1" ] && [ -x "$1" ]; then
        real=${1%/}/
    else
        real=$(real_path "$1")
    fi
}

# is_plain PATH: true if it is absolute, and its own real path.
is_plain() {
    case $1 in
    *//* | */./* | */../* | */. | */..) return 1 ;;
    /*) ;;
    *) return 1 ;;
    esac
    part=${1%/}
    while [ "$part" ]; do
        [ ! -L "$part" ] || return
        part=${part%/*}
    done
}

# real_path DIRECTORY: with a trailing slash, which keeps a newline before it from being dropped. In bash, a path that
# began with two slashes, or passed through a link to the root, keeps both.
real_path() {
    (
        unset CDPATH && cd -P -- "$1" && set -- "${PWD%/}" || exit
        while :; do
            case $1 in
            //*) set -- "${1#/}" ;;
            *) break ;;
            esac
        done
        printf %s/ "$1"
    ) 2>/dev/null
}

# check_agent NAME: search as exec does, for an agent that will run in `cwd` with `agent_path`. `command -v` would
# also find builtins, and the functions of this script.
check_agent() {
    unusable=
    case $1 in
    /*) is_program "$1" && return ;;
    */*) is_program "$cwd/$1" && return ;;
    *) search_path "$1" && return ;;
    esac
    [ -z "$unusable" ] || refuse agent_not_executable "$unusable"
    refuse agent_not_found "$1"
}

search_path() {
    rest=${agent_path:-$PATH}:
    while [ "$rest" ]; do
        directory=${rest%%:*}
        rest=${rest#*:}
        is_program "${directory:-$cwd}/$1" && return
    done
    return 1
}

is_program() {
    [ -f "$1" ] && [ -x "$1" ] && return
    if [ -e "$1" ]; then unusable=$1; fi
    return 1
}
