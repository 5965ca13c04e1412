# The first process on a job's terminal, which becomes the job's own bash. What stands before it sets ew_base, ew_call, ew_mark, ew_args, ew_rows and
# ew_cols; ew_stty, ew_shell, ew_opts and the supervisor's ew_pid come in the environment. From here on it carries the job's marks, what holds the terminal does not.
unset -v POSIXLY_CORRECT
LC_ALL=C
export -n ew_bash ew_lead ew_pid ew_stty ew_shell ew_opts
if [[ $ew_shell ]]; then export SHELL="${ew_shell#x}"; else unset -v SHELL; fi
[[ ! $ew_opts ]] || export $ew_opts
"$ew_stty" sane rows "$ew_rows" cols "$ew_cols" 2>/dev/null
ulimit -S -x "$ew_mark" 2>/dev/null
export ELSEWHERE_CALL="$ew_call"
ew_l=
{ IFS= read -r -d '' ew_l <"/proc/$$/stat"; } 2>/dev/null
ew_l=${ew_l##*) }
set -- $ew_l
# The supervisor makes the file when it waits no longer.
set -C
{ printf '%s %s .\n' "$$" "${20:--}" >"$ew_base.tty"; } 2>/dev/null || exit
set +C --
kill -0 "$ew_pid" 2>/dev/null || exit
exec -a bash "$BASH" --noprofile --norc -p -c "$ew_args"
