# Git in a sandbox whose workspace is a git worktree: `.git` is a file there, which leads to a directory of the worktree's
# own inside the git directory of a repository elsewhere. Git writes to both, but an agent must not: hooks and settings of
# its making would run outside, and objects that it had replaced would be checked out by others. So the sandbox shows
#
#   common   the repository's git directory: read-only, with its branches and tags
#   own      the worktree's part of it: writable, but for what tells git where the settings are
#   store    a directory in there, in the place of the repository's objects, to which it refers: new ones go there
#
# Once the agent has ended, git reads the store in the sandbox, and outside only adds to the repository what it is sent,
# by names of its own making: as it would in a fetch.
#
# Callers set `cwd`, and to keep objects `spool`, `scope` and `wall`.

lent_objects=/run/repository/objects

# show_repository: add it to `wall`, if the workspace has one elsewhere.
show_repository() {
    find_repository || return 0
    add_words --ro-bind "$common" "$common"
    hide_worktrees
    link_repository
    prepare_store 2>/dev/null || return 0
    add_words --bind "$own" "$own"
    for name in commondir gitdir config.worktree; do add_words --ro-bind "$own/$name" "$own/$name"; done
    for path in "$store" "$common/objects"; do
        add_words --bind "$store" "$path" --ro-bind "$store/info" "$path/info"
    done
    add_words --ro-bind "$common/objects" "$lent_objects"
}

# find_repository: sets `pointer`, `own`, `common` and `store`; fails if the workspace is no worktree that its repository
# knows, too: an agent of an earlier turn may have written `.git`, to be shown what it leads to.
find_repository() {
    store=
    [ ! -L "$cwd/.git" ] && first_line "$cwd/.git" || return
    case $line in
    "gitdir: "*) pointer=${line#gitdir: } ;;
    *) return 1 ;;
    esac
    own=$(cd -- "$cwd" && real_path "$pointer") && own=${own%/} || return
    first_line "$own/commondir" || return
    common=$(cd -- "$own" && real_path "$line") && common=${common%/} || return
    [ "${own%/*}" = "$common/worktrees" ] && first_line "$own/gitdir" || return
    place=$(real_path "$cwd")
    [ "$(cd -- "$own" && real_path "${line%/.git}")" = "$place" ] || return
    store=$own/runturn
    is_apart && return
    store=
    return 1
}

# is_apart: true if a sandbox can show the repository, and nothing else by it. Links would lead bwrap elsewhere.
is_apart() {
    case $common/ in
    "$place"*) return 1 ;;
    esac
    case $(real_path "$HOME") in
    "$common/"*) return 1 ;;
    esac
    [ -d "$common/objects" ] || return
    for path in "$common/objects" "$own/commondir" "$own/gitdir" "$own/config.worktree" "$store" "$store/info" \
        "$store/info/alternates"; do
        if [ -L "$path" ]; then return 1; fi
    done
}

# first_line FILE: sets `line`.
first_line() {
    line=
    [ -f "$1" ] && { IFS= read -r line || [ "$line" ]; } <"$1"
} 2>/dev/null

# hide_worktrees: the files of other worktrees that are kept inside the repository's git directory.
hide_worktrees() {
    for entry in "$common"/worktrees/*/gitdir; do
        first_line "$entry" || continue
        path=${line%/.git}
        case $path in
        /*) ;;
        *) path=$(cd -- "${entry%/gitdir}" && real_path "$path") ;;
        esac
        case $path in
        "$common"/*) if [ -d "$path" ]; then show_empty "${path%/}"; fi ;;
        esac
    done
}

# link_repository: where `.git` says that it is, if that is not its real path.
link_repository() {
    base=${cwd%/}
    case $pointer in
    /*) base= ;;
    esac
    while :; do
        case $pointer in
        ../*) pointer=${pointer#../} base=${base%/*} ;;
        *) break ;;
        esac
    done
    pointer=${base:+$base/}$pointer
    if [ "$pointer" != "$own" ]; then add_words --symlink "$common" "${pointer%/worktrees/*}"; fi
}

# prepare_store: git obeys config.worktree only where the repository says so; blank, it says nothing.
prepare_store() {
    (umask 077 && mkdir -p "$store/info" "$store/pack") || return
    first_line "$store/info/alternates"
    [ "$line" = "$lent_objects" ] || printf '%s\n' "$lent_objects" >"$store/info/alternates" || return
    [ -e "$own/config.worktree" ] || : >"$own/config.worktree"
}

# For a shell in the sandbox: list, pack and clean the store. What an agent has put there can mislead nobody outside.
in_store='cd "$2" || exit; loose() { find . -type f -path "./??/*" | tr -d ./ | grep "^[0-9a-f]*\$"; }'
in_store="$in_store"'; packed() { git --git-dir="$own" show-index <"$1" | cut -d" " -f2; }; own=$1 store=$2 lent=$3'
in_store="$in_store"'; lent() { GIT_OBJECT_DIRECTORY=$lent git --git-dir="$own" cat-file --batch-check; }'
pack_store="$in_store"'; { loose; for pack in pack/*.idx; do [ ! -f "$pack" ] || packed "$pack"; done; }'
pack_store="$pack_store"' | GIT_OBJECT_DIRECTORY=$store git --git-dir="$own" pack-objects -q --stdout'
clean_store="$in_store"'; loose | lent | while read -r name type rest; do [ "$type" = missing ] ||'
clean_store="$clean_store"' rm -f "${name%"${name#??}"}/${name#??}"; done; for pack in pack/*.idx; do [ ! -f "$pack" ] ||'
clean_store="$clean_store"' packed "$pack" | lent | grep -q missing || rm -f "${pack%.idx}".*; done'

# keep_objects: add those in the store to the repository, within half a minute: the agent could have made something that git
# waits for. If that fails, the agent's stderr says so, and the next turn here tries again, and sees them all the same.
keep_objects() {
    find_repository && is_filled || return 0
    # A scope of systemd's can be made once only.
    bare=$wall
    if [ "$scope" ]; then bare=${wall#*" '--' "}; fi
    (transfer_objects) </dev/null >"$spool/transfer" 2>&1 4>&- &
    transfer=$!
    waited=0
    while kill -0 "$transfer" && [ "$waited" -lt 300 ]; do pause; done 2>/dev/null
    if kill -0 "$transfer" 2>/dev/null; then
        echo "it takes too long" >>"$spool/transfer"
        kill -KILL "$transfer"
        sweep
    fi
    wait "$transfer" && return
    said=$(head -c 1000 "$spool/transfer")
    echo "runturn: what the agent has committed stays in $store, out of its repository's sight: $said" >>"$spool/err"
}

# transfer_objects: all of it carries the turn's marks, and may take 4 GiB of memory.
transfer_objects() {
    export RUNTURN_SPOOL="$spool"
    carry_limit
    ulimit -v 4194304
    unset -v GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES \
        GIT_COMMON_DIR GIT_NAMESPACE
    (umask 077 && make_receiver) && add_objects && eval "$bare"' sh -c "$clean_store" sh "$own" "$store" "$lent_objects"'
}

add_objects() {
    eval "$bare"' sh -c "$pack_store" sh "$own" "$store" "$lent_objects"' |
        GIT_OBJECT_DIRECTORY=$common/objects git --git-dir="$spool/receiver" unpack-objects -q
}

is_filled() {
    for path in "$store"/[0-9a-f][0-9a-f]/* "$store"/pack/*.idx; do
        if [ -e "$path" ]; then return; fi
    done
    return 1
}

# make_receiver: a git directory without settings but those of the files that git is to write. The repository's own
# could name programs.
make_receiver() {
    mkdir -p "$spool/receiver/refs" && echo "ref: refs/heads/none" >"$spool/receiver/HEAD" || return
    : >"$spool/receiver/config"
    for name in core.repositoryformatversion extensions.objectformat core.sharedrepository; do
        value=$(git config --file "$common/config" "$name") || continue
        git config --file "$spool/receiver/config" "$name" "$value" || return
    done
}
