# What the job's own bash runs before the command: the session's umask, aliases and functions; its variables are in the
# environment. The texts come from descriptor 9.
LC_ALL=C
ew_take() {
	IFS= read -r -u 9 ew_n
	if (( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 401 )); then
		IFS= read -r -d '' -u 9 ew_text
	else
		IFS= read -r -N "$ew_n" -u 9 ew_text
		IFS= read -r -d '' -u 9 ew_n
	fi
}
ew_take
ew_state=$ew_text
ew_take
BASH_EXECUTION_STRING=$ew_text
exec 9<&-
unset -f ew_take
eval "$ew_state" >/dev/null 2>&1
builtin unset -v LC_ALL
builtin set +p
builtin declare SECONDS=0
[[ ! $ew_late ]] || builtin eval "$ew_late" 2>/dev/null
builtin shopt -s expand_aliases
builtin unset -v "${!ew_@}"
