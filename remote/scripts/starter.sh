# The starter: claims a spool, starts its turn, and becomes the turn's first follower. A start that finds the spool
# claimed only follows, so it may be repeated until it is answered.
#
# Callers set what follower.sh needs, and `workspace_roots`, `lease`, `ladder`, `cwd`, `prompt_bytes`, `prompt`
# (blank: it must be requested), `prompt_lines` (of a live turn; else blank), `files`, `agent_environment`,
# `agent_path` (blank: the host's), `session_*`, `max_disk` (KiB; blank: no limit), and what containment.sh and scope.sh
# need.

# start ARGV...
start() {
    require_tools ${prompt_lines:+mkfifo}
    if [ "$isolation" = sandbox ]; then require_tools readlink; fi
    if [ "$max_disk" ]; then require_tools du; fi
    place "$root" "$id"
    started_here=
    if [ ! -d "$spool" ]; then
        check_workspace "$cwd" "$workspace_roots"
        check_agent "$1"
        choose_wall
        draft_spool
        await_go
        if claim; then start_supervisor "$@" && started_here=yes; fi
    fi
    follow
}

# draft_spool: everything in a spool, next to its place, so that it appears there complete or not at all.
draft_spool() {
    if [ ! -d "$root" ]; then
        said=$(umask 077 && LC_ALL=C mkdir -p "$root" 2>&1) || blame "$said"
    fi
    said=$(LC_ALL=C mktemp -d "$root/.$id.XXXXXX" 2>&1) || blame "$said"
    draft=$said
    if [ "$prompt_lines" ]; then said=$(umask 077 && LC_ALL=C make_pipes 2>&1) || blame "$said"; fi
    if [ -z "$prompt" ] && [ "$prompt_bytes" -gt 0 ]; then ask prompt; fi
    begin_trial
    filled=yes
    said=$(umask 077 && fill 2>&1) || filled=
    await_trial
    [ "$filled" ] || refuse spool_full "$root: $said"
    if [ -z "$tried" ]; then
        said=$(cat "$draft/trial")
        refuse_sandbox
    fi
    # Not before there is room: from now on, the worker counts the attempt as started.
    ask go
}

# begin_trial: of the sandbox, while the spool is filled: it takes as long.
begin_trial() {
    trial=
    if [ "$untried" ]; then
        try_sandbox >"$draft/trial" 2>&1 &
        trial=$!
    fi
}

# await_trial: sets `tried`; blank: the sandbox cannot be made. Whatever comes next, nothing writes to the draft any more.
await_trial() {
    tried=yes
    if [ "$trial" ]; then wait "$trial" || tried=; fi
}

# ask WHAT: request it from the worker.
ask() {
    asked_at=
    if uptime; then asked_at=$now; fi
    answer "RT-SEND $nonce $1"
}

# await_go: a start that was delayed in transit may arrive when its turn is over, or runs elsewhere; so may the
# word to go. Without an answer, the worker starts once more, if it still wants to.
await_go() {
    IFS= read -r word && [ "$word" = go ] && in_time "$asked_at" 0 && return
    rm -rf "$draft"
    exit 1
}

# blame MESSAGE
blame() {
    case $1 in
    *"No space left"* | *"quota exceeded"*) refuse spool_full "$1" ;;
    esac
    refuse spool_unwritable "$1"
}

# fill: writing plain files in a new directory fails only for lack of space. A truncated prompt must start no agent.
fill() {
    spool=$draft
    for name in events err; do
        printf '' >"$draft/$name" || return
    done
    if [ "$prompt" ] || [ "$prompt_bytes" -eq 0 ]; then
        printf %s "$prompt" >"$draft/prompt" || return
    else
        receive_prompt || return
    fi
    record_sessions || return
    boot_id
    printf '%s\n' "$lease $boot $ladder" >"$draft/turn" || return
    record_limits || return
    for name in supervisor watcher agent heartbeat reason peak times end; do
        put "$name" "" || return
    done
    if [ "$prompt_lines" ]; then prepare_input || return; fi
    LC_ALL=C
    mkdir "$draft/files" || return
    eval "$files" || return
    if [ "$isolation" = sandbox ]; then printf '' >"$draft/transfer" && printf '' >"$draft/out" || return; fi
    reserve_room
}

# reserve_room: each takes a process, so all at once.
reserve_room() {
    reserve 65536 err &
    set -- $!
    if [ "$isolation" = sandbox ]; then
        reserve 1048576 out &
        set -- "$@" $!
    fi
    reserve 1048576 events || return
    for reserving in "$@"; do wait "$reserving" || return; done
}

# reserve BYTES FILE: room that the agent's output may use once the disk is full, if this host and its file system
# can set some aside. An agent drops what it cannot write, and then fails although it has done everything.
reserve() {
    command -v fallocate >/dev/null || return 0
    said=$(LC_ALL=C fallocate -n -l "$1" "$draft/$2" 2>&1) && return
    case $said in
    *"No space left"* | *"quota exceeded"*) ;;
    *) return 0 ;;
    esac
    echo "$said"
    return 1
}

receive_prompt() {
    head -c "$prompt_bytes" >"$draft/prompt"
    [ "$(($(wc -c <"$draft/prompt")))" -eq "$prompt_bytes" ]
}

# claim: rename is atomic. If another start was faster, mv fails, or puts the draft inside the other's spool. It also
# fails if the turn was given up, see `undo_drafts`.
claim() {
    second=$spool/${draft##*/}
    if mv "$draft" "$spool" 2>/dev/null && [ ! -d "$second" ]; then
        draft=
        return
    fi
    rm -rf "$draft" "$second"
    draft=
    return 1
}

# start_supervisor ARGV...
start_supervisor() {
    said=$(
        export RUNTURN_ENVIRONMENT="$agent_environment" RUNTURN_WALL="$wall" RUNTURN_ISOLATION="$isolation" RUNTURN_SCOPE="$scope"
        detach supervise "$spool" "$cwd" "$@" 2>&1 >/dev/null
    ) && return
    rm -rf "$spool"
    refuse start_failed "$said"
}
