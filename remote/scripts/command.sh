# One short command: its output between two marks, then its exit code, its stderr, and a last mark.
#
# Callers set `nonce` and `script`.

run_command() {
    printf '\nRT-BEGIN %s\n' "$nonce"
    exec 4>&1
    errors=$( (eval "$script") 2>&1 >&4 </dev/null)
    printf '\nRT-EXIT %s %s\n%s\nRT-END %s\n' "$nonce" "$?" "$errors" "$nonce"
}
