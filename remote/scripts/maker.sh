# The maker: creates a workspace for a turn if missing, and answers with its path. Its files come over the channel,
# as a tar archive after a line with its size; or it is a git worktree of a repository on this host.
#
# Callers set `root` and `id`, `nonce`, `repository` (blank: files are sent), `ref`, `workspace_roots`,
# `wants_patch`.

# answer WORDS...: on a separate line, whatever a start-up file of the login shell has printed before.
answer() {
    printf '\n%s\n' "$*"
}

# refuse CODE DETAIL
refuse() {
    discard
    answer "RT-REFUSED $nonce $1" "$(printf %s "$2" | tr '\n' ' ')"
    exit 1
}

# discard: the draft, and its repository's record of it.
discard() {
    if [ "$draft" ] && [ "$repository" ]; then forget_worktree "$draft/workspace"; fi
    if [ "$metadata" ]; then rm -rf "$metadata"; fi
    if [ "$draft" ]; then rm -rf "$draft"; fi
}

# blame MESSAGE
blame() {
    case $1 in
    *"No space left"* | *"quota exceeded"*) refuse workspace_full "$root: $1" ;;
    esac
    refuse workspace_unwritable "$root: $1"
}

make_workspace() {
    umask 022
    draft=
    metadata=
    for tool in head tar mktemp find; do
        command -v "$tool" >/dev/null || refuse tool_missing "$tool"
    done
    if [ "$repository$wants_patch" ]; then forget_git; fi
    place "$root" "$id"
    if [ ! -d "$root" ]; then
        said=$(umask 077 && LC_ALL=C mkdir -p "$root" 2>&1) || blame "$said"
    fi
    find_made "$root" "$id"
    if [ ! -d "$made" ]; then
        if [ "$repository" ]; then check_repository; fi
        said=$(LC_ALL=C mktemp -d "$root/.$id.XXXXXX" 2>&1) || blame "$said"
        draft=$said
        if [ "$repository" ]; then add_worktree; else receive_files; fi
        claim_workspace
    fi
    answer "RT-MADE $nonce $made/workspace"
}

# check_repository: sets `common`, its git directory shared by all worktrees, and `commit`.
check_repository() {
    [ -d "$repository" ] || refuse repository_missing "$repository"
    said=$(cd -- "$repository" && plain_git rev-parse --git-common-dir 2>&1) ||
        refuse repository_missing "$repository: $said"
    common=$(cd -- "$repository" && real_path "$said") || refuse repository_missing "$repository: $said"
    if [ "$workspace_roots" ]; then
        check_roots "$repository" "$workspace_roots"
        check_roots "$common" "$workspace_roots"
    fi
    commit=$(plain_git -C "$repository" rev-parse --verify --quiet "$ref^{commit}") ||
        refuse ref_missing "$ref in $repository"
}

# add_worktree: locked, so git does not prune the draft; git's record is updated before it is moved without git.
add_worktree() {
    said=$({ printf '%s\n' "$common" >"$draft/repository"; } 2>&1) || blame "$said"
    said=$(
        plain_git -C "$repository" -c worktree.useRelativePaths=false worktree add --detach --lock \
            "$draft/workspace" "$commit" 2>&1 </dev/null
    ) || blame "$said"
    metadata=$(plain_git -C "$draft/workspace" rev-parse --absolute-git-dir) || blame "$draft/workspace"
    said=$({
        printf '%s\n' "$commit" >"$draft/base" &&
            printf '%s\n' "$metadata" >"$draft/git_dir" &&
            printf '%s\n' "$made/workspace/.git" >"$metadata/gitdir"
    } 2>&1) || blame "$said"
}

# receive_files: a truncated archive makes no workspace, even if tar accepts it as a whole one.
receive_files() {
    answer "RT-SEND $nonce files"
    IFS= read -r upload_bytes || leave_unmade
    said=$({ mkdir "$draft/workspace" && head -c "$upload_bytes" | LC_ALL=C tar -xf - -C "$draft/workspace"; } 2>&1) ||
        blame "$said"
    answer "RT-SEND $nonce go"
    IFS= read -r word && [ "$word" = go ] || leave_unmade
    if [ "$wants_patch" ]; then said=$(record_base 2>&1) || blame "$said"; fi
}

leave_unmade() {
    discard
    exit 1
}

# record_base: everything received, in a separate repository, for later comparison.
record_base() {
    export GIT_DIR="$draft/base.git" GIT_INDEX_FILE="$draft/index"
    plain_git init -q --bare "$GIT_DIR" || return
    export GIT_WORK_TREE="$draft/workspace"
    (cd -- "$GIT_WORK_TREE" && index_files "$draft/files") || return
    plain_git write-tree >"$draft/base" || return
    printf '%s\n' "$made/base.git" >"$draft/git_dir"
}

# claim_workspace: rename is atomic. If another maker was faster, mv fails, or puts the draft inside the other's.
claim_workspace() {
    mv "$draft" "$made" 2>/dev/null
    second=$made/${draft##*/}
    if [ -d "$second" ]; then draft=$second; fi
    if [ -d "$draft" ]; then discard; fi
    draft=
    metadata=
}
