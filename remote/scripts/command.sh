# One short command: its output between two marks, then its exit code and what it wrote to stderr.
#
# Callers set `nonce`, `input_bytes` and `script`.

run_command() {
    printf '\nRT-BEGIN %s\n' "$nonce"
    exec 4>&1
    errors=$(run_script "$@" 2>&1 >&4)
    printf '\nRT-EXIT %s %s\n%s' "$nonce" "$?" "$errors"
}

run_script() {
    if [ "$input_bytes" -gt 0 ]; then
        head -c "$input_bytes" | (eval "$script")
    else
        (eval "$script") </dev/null
    fi
}
