# The input of a live turn. What is said to its agent is kept in `prompt`, a line each; the feeder, a process of its
# own beside the supervisor, passes it on through the FIFO `input`, whose end its agent reads as the end of its input.
# A byte in the FIFO `wake` has it look again: so it polls nothing, and needs no inotify.
#
# Only what `said` counts is passed on. A line that was cut short while it was written is none, and is dropped by the
# next attachment; a line that is sent again after a lost link is known by its number.

# prepare_input: in the draft of a live turn.
prepare_input() {
    mkfifo "$draft/input" "$draft/wake" || return
    put closed "" && put writer 0 || return
    put said "$prompt_lines $prompt_bytes"
}

is_live() {
    [ -p "$spool/input" ]
}

# start_feeder: `feeder`, in a group of its own. It carries the turn's mark, so whoever sweeps finds it.
start_feeder() {
    feeder=
    is_live || return 0
    (
        export RUNTURN_SPOOL="$spool"
        unset RUNTURN_ENVIRONMENT
        exec setsid sh -c 'eval "$RUNTURN_SCRIPT"; feed' </dev/null
    ) &
    start_time $!
    feeder="$! $started_at"
}

end_feeder() {
    if alive $feeder; then kill -KILL "-${feeder%% *}" "${feeder%% *}"; fi
} 2>/dev/null

# feed: opening a FIFO waits for its other end; `wake` has both here. It is open before `said` is read, so no word is
# missed.
feed() {
    spool=$RUNTURN_SPOOL
    unset RUNTURN_SCRIPT
    exec 4<>"$spool/wake" && exec >"$spool/input" || exit
    fed=0
    while :; do
        get closed
        closed=$value
        get said
        pass_on "${value#* }"
        if [ "$closed" ]; then exit; fi
        read -r word <&4
    done
}

# pass_on BYTES: the agent has so many of them then. Two processes a line; some heads read ahead, so none may go on
# where another one has stopped.
pass_on() {
    [ "$1" -gt "$fed" ] || return 0
    tail -c "+$((fed + 1))" "$spool/prompt" | head -c "$(($1 - fed))" || exit
    fed=$1
}

# take_over_input: `said_lines` for the answer. Whoever attached last is the one who says what the agent is told, unless
# the turn was taken from it: who has taken it has a higher epoch.
take_over_input() {
    said_lines=
    superseded=
    is_live || return 0
    get writer
    if [ "${value%% *}" -gt "$epoch" ]; then superseded=yes; else put writer "$epoch $follower"; fi
    get said
    said_lines=${value%% *}
    said_bytes=${value#* }
    [ "$started_here$superseded" ] || [ "$(($(wc -c <"$spool/prompt")))" -eq "$said_bytes" ] && return
    head -c "$said_bytes" "$spool/prompt" >"$spool/prompt.new" && mv "$spool/prompt.new" "$spool/prompt"
}

# say NUMBER BYTES LINE: unless it was said before. What fails for want of room is sent again to the next attachment.
say() {
    may_say && get said || return 0
    [ "$1" -eq "$((${value%% *} + 1))" ] || return 0
    printf '%s\n' "$3" >>"$spool/prompt" || leave
    put said "$1 $((${value#* } + $2))"
    wake_feeder
}

# may_say: one with a lower epoch may have written its name over ours when it attached at the same moment.
may_say() {
    get writer
    [ "$value" = "$epoch $follower" ] && return
    [ "${value%% *}" -lt "$epoch" ] && put writer "$epoch $follower"
}

end_input() {
    is_live && may_say || return 0
    put closed yes
    wake_feeder
}

wake_feeder() {
    echo 1<>"$spool/wake"
}
