# Run by a bash of ours in place of a command: what stands before it sets ew_token, ew_base, ew_dir, ew_meta, ew_command, ew_supervise,
# ew_start, ew_args, ew_id and ew_mark. All is done in a subshell, with nothing but builtins; it starts the supervisor by exec, in a process group of
# its own and with marks of its own, and ends when that has closed its standard output. No text stands in an argument, a
# variable of the environment or a file: the supervisor and the job read it from a pipe.
ew_out=$(
# As in an EXIT trap nothing is certain here; see report.sh.
{ POSIXLY_CORRECT=${POSIXLY_CORRECT-ew} ew_own=; \trap - DEBUG ERR RETURN EXIT; \set +aefkmnuvxCETP; } >/dev/null 2>&1
if \export -nf builtin; then ew_own=$(\typeset -f builtin); \unset -f builtin; fi >/dev/null 2>&1
[[ $POSIXLY_CORRECT != ew ]] || \builtin unset -v POSIXLY_CORRECT
\builtin shopt -u expand_aliases extdebug
ew_late=
for ew_x in LC_ALL TMOUT POSIXLY_CORRECT; do
	if [[ ${!ew_x+x} ]]; then
		\builtin printf -v ew_q 'builtin export %s=%q;' "$ew_x" "${!ew_x}"
		ew_late+=$ew_q
		\builtin unset -v "$ew_x"
	fi
done
LC_ALL=C
[[ $ew_own != 'builtin () '* ]] || ew_command=$ew_own$'\n'"shopt -s expand_aliases"$'\n'$ew_command
ew_state=$(\builtin umask -p; \builtin shopt -p extglob; \builtin alias -p; \builtin declare -f; \builtin printf 'ew_late=%q\n' "$ew_late")
ew_x=$(\builtin compgen -A function)$'\n'
while [[ $ew_x ]]; do
	\builtin unset -f -- "${ew_x%%$'\n'*}"
	ew_x=${ew_x#*$'\n'}
done 2>/dev/null
\builtin umask 077
\builtin set -C
if ! { \builtin printf '%s\n' "$ew_meta" >"$ew_base.meta"; } 2>/dev/null; then
	if [[ -s $ew_base.meta ]]; then ew_x=taken; else ew_x=unwritable; fi
	\builtin printf '%s%s\n' "$ew_token" "$ew_x"
	\builtin exit
fi
\builtin set +C
ew_n=0
for ew_x in "$ew_dir"/job-*.end; do
	[[ ! -s $ew_x ]] || ew_n=$((ew_n + 1))
done
\builtin printf '%sended %s\n' "$ew_token" "$ew_n"
\builtin set -m
\builtin printf '%s\0%s\0%s\n%s\0%s\n%s\0' "$ew_supervise" "$ew_start" "${#ew_state}" "$ew_state" "${#ew_command}" "$ew_command" 2>/dev/null | {
	\builtin ulimit -S -x "$ew_mark"
	\builtin export ELSEWHERE_CALL="$ew_id" ELSEWHERE_SESSION="$ew_id"
	\builtin exec -a bash "$BASH" --noprofile --norc -p -c "$ew_args"
} 2>/dev/null &
)
\builtin printf '%s\n' "$ew_out"
\builtin unset -v "${!ew_@}"
