# One short command: its output between two marks, then its exit code and what it wrote to stderr.
#
# Callers set `nonce` and `script`.

run_command() {
    printf '\nRT-BEGIN %s\n' "$nonce"
    exec 4>&1
    errors=$( (eval "$script") 2>&1 >&4 </dev/null)
    printf '\nRT-EXIT %s %s\n%s' "$nonce" "$?" "$errors"
}
