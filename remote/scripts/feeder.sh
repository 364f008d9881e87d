# The input of a live turn. Its lines are kept in `prompt`; the feeder, a separate process next to the supervisor,
# passes them on through the FIFO `input`, whose end the agent reads as the end of its input. A byte in the FIFO
# `wake` makes the feeder check again: so it does not poll, and needs no inotify.
#
# Only what `said` counts is passed on. A line that was cut short while being written does not count, and the next
# attachment drops it; a line that is sent again after a lost connection is recognized by its number.

# make_pipes: in the draft of a live turn. Not every file system can.
make_pipes() {
    mkfifo "$draft/input" "$draft/wake"
}

# prepare_input: create the input's other files.
prepare_input() {
    put closed "" && put writer 0 || return
    put said "$prompt_lines $prompt_bytes"
}

is_live() {
    [ -p "$spool/input" ]
}

# start_feeder: sets `feeder`, in a separate group. It carries the turn's mark, so a sweep finds it.
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

# feed: opening a FIFO waits for its other end; `wake` has both here. It is open before `said` is read, so no line
# is missed.
feed() {
    spool=$RUNTURN_SPOOL
    unset RUNTURN_SCRIPT
    exec 4<>"$spool/wake" && exec >"$spool/input" || exit
    fed=0
    while :; do
        get closed
        closed=$value
        get said
        if are_numbers $value; then pass_on "${value#* }"; fi
        if [ "$closed" ]; then exit; fi
        read -r word <&4
    done
}

# pass_on BYTES: bring the agent's input up to that many bytes. Two processes per line: some implementations of
# `head` read ahead, so none may continue where another one stopped.
pass_on() {
    [ "$1" -gt "$fed" ] || return 0
    tail -c "+$((fed + 1))" "$spool/prompt" | head -c "$(($1 - fed))" || exit
    fed=$1
}

# take_over_input: sets `said_lines` for the answer. The last follower to attach sends the agent's input, unless
# the turn was taken from it by one with a higher epoch.
take_over_input() {
    said_lines=
    superseded=
    is_live || return 0
    get writer
    if are_numbers "${value%% *}" && [ "${value%% *}" -gt "$epoch" ]; then
        superseded=yes
    else
        put writer "$epoch $follower"
    fi
    get said
    are_numbers $value || exit
    said_lines=${value%% *}
    said_bytes=${value#* }
    [ -f "$spool/prompt" ] || exit
    [ "$started_here$superseded" ] || [ "$(($(wc -c <"$spool/prompt")))" -eq "$said_bytes" ] && return
    clear_way prompt.new
    head -c "$said_bytes" "$spool/prompt" >"$spool/prompt.new" && mv "$spool/prompt.new" "$spool/prompt"
}

# say NUMBER BYTES LINE: unless it was said before. If there is no space, the next attachment sends it again.
say() {
    may_say && get said && are_numbers $value || return 0
    [ "$1" -eq "$((${value%% *} + 1))" ] || return 0
    [ -f "$spool/prompt" ] && printf '%s\n' "$3" >>"$spool/prompt" || leave
    put said "$1 $((${value#* } + $2))"
    wake_feeder
}

# may_say: a follower with a lower epoch that attached at the same moment may have overwritten our name.
may_say() {
    get writer
    [ "$value" = "$epoch $follower" ] && return
    are_numbers "${value%% *}" && [ "${value%% *}" -lt "$epoch" ] && put writer "$epoch $follower"
}

end_input() {
    is_live && may_say || return 0
    put closed yes
    wake_feeder
}

wake_feeder() {
    echo 1<>"$spool/wake"
}
