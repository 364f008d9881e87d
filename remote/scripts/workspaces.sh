# Workspaces created for turns. Each is in a directory named after its turn, next to:
#
#   base        the commit or tree that it started from, if a patch is wanted
#   git_dir     its git directory
#   repository  of a git worktree: the git directory shared by all worktrees, with a trailing slash
#
# It appears there complete or not at all. Callers define `refuse CODE DETAIL`.

# find_made ROOT ID: sets `made`, by the root's real path: git records real paths.
find_made() {
    place "$1" "$2"
    id=$2
    root=$(real_path "$root") || refuse workspace_missing "$spool"
    root=${root%/}
    made=$root/$id
}

# plain_git ARGS...: git without the repository's own programs.
plain_git() {
    git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 "$@"
}

# forget_git: the environment may name another repository, as in a hook.
forget_git() {
    unset -v GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES \
        GIT_COMMON_DIR GIT_NAMESPACE
    export GIT_TERMINAL_PROMPT=0
    command -v git >/dev/null || refuse git_missing "git"
}

# forget_worktree PATH: remove the record of the worktree at PATH from the repository in `common`.
forget_worktree() {
    for entry in "$common"worktrees/*/; do
        leads_to=
        IFS= read -r leads_to 2>/dev/null <"${entry}gitdir"
        if [ "$leads_to" = "$1/.git" ]; then rm -rf "${entry%/}"; fi
    done
}

# index_files LIST: add all files of the current directory to the index, except those that git ignores. By their
# names: `git add` would skip the files of a checkout in here.
index_files() {
    find . -name .git -prune -o \( -type f -o -type l \) -print0 >"$1" || return
    plain_git update-index --add -z --stdin <"$1" || return
    plain_git check-ignore --no-index -z --stdin <"$1" >"$1.ignored"
    plain_git update-index --force-remove -z --stdin <"$1.ignored"
}

# index_worktree: the same in a git worktree, whose repository must not grow.
index_worktree() {
    IFS= read -r common <"$made/repository" && mkdir -p "$made/objects" || return
    export GIT_OBJECT_DIRECTORY="$made/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="${common}objects"
    # A copy of the index saves git from reading unchanged files. Those that may have changed in the second in
    # which the index was written, git reads anyway, so the copy must be as old.
    cp -p "$GIT_DIR/index" "$GIT_INDEX_FILE" || plain_git read-tree "$base" || return
    # In a submodule, `git add` would have git do what the agent has configured there.
    plain_git ls-files -s | grep '^160000 ' | cut -f 2- >"$patch/submodules"
    plain_git update-index --skip-worktree --stdin <"$patch/submodules" || return
    plain_git add -A . || return
    plain_git update-index --no-skip-worktree --stdin <"$patch/submodules" || return
    plain_git update-index --remove --stdin <"$patch/submodules"
}

# enter_made ROOT ID
enter_made() {
    find_made "$1" "$2"
    if [ -L "$made/workspace" ] || ! cd -P -- "$made/workspace"; then refuse workspace_missing "$made/workspace"; fi
}

# read_patch ROOT ID BYTES: print the beginning of all changes since the workspace was created. It writes to a
# separate directory: a worker that was killed may have left another one running.
read_patch() {
    enter_made "$1" "$2"
    forget_git
    IFS= read -r base <"$made/base" && IFS= read -r git_dir <"$made/git_dir" || refuse not_collected "$made/base"
    patch=$(mktemp -d "$made/.patch.XXXXXX") || refuse not_collected "$made"
    export GIT_DIR="$git_dir" GIT_WORK_TREE="$made/workspace" GIT_INDEX_FILE="$patch/index"
    said=$(compare 2>&1)
    compared=$?
    if [ "$compared" = 0 ]; then head -c "$3" "$patch/patch"; fi
    rm -rf "$patch"
    [ "$compared" = 0 ] || refuse not_collected "$said"
}

# compare: the current files with `base`.
compare() {
    if [ -e "$made/repository" ]; then index_worktree; else index_files "$patch/files"; fi || return
    plain_git diff --cached --binary --no-color --no-ext-diff --no-textconv --submodule=short \
        --src-prefix=a/ --dst-prefix=b/ "$base" -- >"$patch/patch"
}

# list_files ROOT ID BYTES: print the names of the regular files, each followed by a NUL; at most BYTES in all.
list_files() {
    enter_made "$1" "$2"
    find . -name .git -prune -o -type f -print0 | head -c "$3"
}

# read_files ROOT ID BYTES NAME...: print for each its size or "-", how many bytes follow, and those; at most BYTES
# in all.
read_files() {
    enter_made "$1" "$2"
    left=$3
    shift 3
    for name; do
        size=-
        taken=0
        if [ -f "$name" ] && [ ! -L "$name" ] && size=$(wc -c <"$name"); then
            size=$((size))
            taken=$size
            if [ "$taken" -gt "$left" ]; then taken=$left; fi
        else
            size=-
        fi
        printf '%s %s\n' "$size" "$taken"
        if [ "$taken" -gt 0 ]; then head -c "$taken" "$name"; fi
        left=$((left - taken))
    done
}

# list_workspaces ROOT: print a line for each, or each draft: the turn's id, seconds since it was changed or "-".
list_workspaces() {
    now=$(date +%s)
    place "$1" ""
    for made in "$root"/[A-Za-z0-9]*/ "$root"/.[A-Za-z0-9]*.??????/; do
        made=${made%/}
        [ -d "$made" ] || continue
        name=${made##*/}
        case $name in
        .*)
            name=${name%.??????}
            name=${name#.}
            ;;
        esac
        case $name in
        *[!A-Za-z0-9._-]*) continue ;;
        esac
        age_of "$made"
        echo "$name $age"
    done
}

# remove_workspace ROOT ID: and all drafts of it. Agents leave directories that even they cannot write to, and
# pipes that must not be opened: their files are next to ours.
remove_workspace() {
    place "$1" "$2"
    [ -d "$root" ] || return 0
    find_made "$1" "$2"
    for draft in "$made" "$root/.$id".??????; do
        [ -d "$draft" ] || continue
        if [ -f "$draft/repository" ] && IFS= read -r common 2>/dev/null <"$draft/repository"; then
            forget_worktree "$draft/workspace"
            forget_worktree "$made/workspace"
        fi
        rm -rf "$draft" 2>/dev/null && continue
        chmod -R u+rwx "$draft"
        rm -rf "$draft" || refuse workspace_unwritable "$draft"
    done
}
