# The rest of the EXIT trap: the new state goes into the slot, by builtins only. What is never saved is unset first (the
# shell is at its end); the three names that change how text is read come last when the state is loaded.
POSIXLY_CORRECT=${POSIXLY_CORRECT-ew}
if \export -nf builtin; then ew_builtin=$(\typeset -f builtin); \unset -f builtin; fi >/dev/null 2>&1
[[ $POSIXLY_CORRECT != ew ]] || \builtin unset -v POSIXLY_CORRECT
builtin unset -v @NEVER@ 2>/dev/null
ew_late= ew_new=1
(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404 )) || ew_new=
for ew_n in LC_ALL TMOUT POSIXLY_CORRECT; do
	if [[ $ew_new && ${!ew_n+x} ]] && builtin eval "[[ \${$ew_n@a} == *x* ]]"; then
		builtin printf -v ew_q 'builtin export %s=%q;' "$ew_n" "${!ew_n}"
		ew_late+=$ew_q
		builtin unset -v "$ew_n" 2>/dev/null
	fi
done
LC_ALL=C
[[ $ew_builtin == 'builtin () '* ]] || ew_builtin=
builtin export -n LC_ALL PWD OLDPWD BASH_EXECUTION_STRING "${!ew_@}"
builtin shopt -q extglob && ew_extglob=1 || ew_extglob=
[[ ! $ew_trap ]] || builtin unset -f trap
# The record becomes a comment of the state: whose file this is has to be known also when no call runs with it any more.
builtin read -r ew_record 2>/dev/null <"$ew_slot"
ew_old=
if [[ ! $ew_new ]]; then
	builtin compgen -e >|"$ew_slot" && while IFS= builtin read -r ew_n; do
		builtin printf -v ew_q 'export %s=%q' "$ew_n" "${!ew_n-}"
		case $ew_n in
		LC_ALL | TMOUT | POSIXLY_CORRECT) ew_late+="builtin $ew_q;" ;;
		*) ew_old+=$ew_q$'\n' ;;
		esac
	done <"$ew_slot"
fi 2>/dev/null
[[ -f $ew_slot ]] && {
	builtin printf '#%s\n' "$ew_record" &&
		builtin umask -p &&
		builtin printf 'ew_extglob=%s\new_oldpwd=%q\new_late=%q\new_builtin=%q\n' "$ew_extglob" "${OLDPWD-}" "$ew_late" "$ew_builtin" &&
		if [[ $ew_new ]]; then builtin export -p; else builtin printf '%s' "$ew_old"; fi &&
		builtin alias -p &&
		builtin printf 'ew_vars=1\n' &&
		builtin declare -f &&
		builtin printf 'ew_funcs=1\n'
} 2>/dev/null >|"$ew_slot" && ew_kind=S || ew_kind=F
if [[ $ew_kind$ew_from == S?* ]]; then
	# Did this call change anything but the record?
	builtin mapfile -s 1 ew_old <"$ew_from" && builtin mapfile -s 1 ew_q <"$ew_slot" && [[ ${ew_old[*]} == "${ew_q[*]}" ]] && ew_kind=U
fi 2>/dev/null
builtin printf '%s' "$ew_token$ew_kind" >&"$ew_fd" 2>/dev/null
# Of what signal a bash dies its end alone tells.
[[ ! $ew_linger || $ew_code == \?* ]] || builtin wait
