# A scope: systemd's group of processes (cgroup v2), in which the kernel keeps the limits of a turn. Everything in it
# ends when the turn takes more memory than it may have. Where there is none, `resources.sh` watches memory and processes.
#
# Callers set `id`, `max_kibibytes`, `max_processes`, `max_cpu_percent` (blank: no limit) and `wall`, and define
# `refuse CODE DETAIL`.

# add_scope: sets `scope`, its name, and puts its command line before that of the wall; blank: this host has none.
add_scope() {
    inside=$wall
    if find_manager && try_scope; then
        make_scope "$id"
        wall="$wall $inside"
    else
        scope= wall=$inside
        [ -z "$max_cpu_percent" ] || refuse isolation_unavailable "max_cpus requires a systemd scope: $said"
    fi
}

# find_manager: sets `manager`, systemd's option for whose it is. A user's ends with the last login, unless it lingers.
find_manager() {
    said="no systemd-run is installed"
    locate systemd-run
    runner=$located
    [ "$runner" != systemd-run ] || return
    manager=--system
    user=$(id -u)
    [ "$user" != 0 ] || return 0
    manager=--user
    said="systemd ends what a user runs with the last login: loginctl enable-linger"
    [ -e "/var/lib/systemd/linger/$(id -un)" ] || return
    export XDG_RUNTIME_DIR="/run/user/$user"
}

# try_scope: true if the kernel keeps each of the limits there; else `said` is why not.
try_scope() {
    set --
    if [ "$max_kibibytes" ]; then set -- memory.max; fi
    if [ "$max_processes" ]; then set -- "$@" pids.max; fi
    if [ "$max_cpu_percent" ]; then set -- "$@" cpu.max; fi
    make_scope "probe-$id"
    # shellcheck disable=SC2016
    said=$(eval "$wall"' sh -c '\''IFS=: read -r number kind path </proc/self/cgroup
        for limit; do read -r most rest <"/sys/fs/cgroup$path/$limit" && [ "$most" != max ] || exit; done'\'' limits "$@"' 2>&1)
}

# make_scope NAME: sets `scope`, and `wall` to the command line that makes it. Threads count as tasks; their number only
# stops what would fill the host between two looks.
make_scope() {
    scope=runturn-$1-$$.scope
    wall=
    add_words "$runner" "$manager" --scope --quiet "--unit=$scope"
    if [ "$max_kibibytes" ]; then add_words -p "MemoryMax=${max_kibibytes}K" -p MemorySwapMax=0; fi
    if [ "$max_processes" ]; then add_words -p "TasksMax=$((max_processes * 10 + 1000))"; fi
    if [ "$max_cpu_percent" ]; then add_words -p "CPUQuota=$max_cpu_percent%"; fi
    add_words --
}

# close_scope: true if the kernel has ended the turn for its memory. systemd keeps a scope that failed, to be asked.
close_scope() {
    [ "$scope" ] || return
    if [ "$(id -u)" = 0 ]; then manager=--system; else manager=--user; fi
    outcome=$(systemctl "$manager" show --property=Result --value "$scope")
    systemctl "$manager" reset-failed "$scope"
    [ "$outcome" = oom-kill ]
} 2>/dev/null
