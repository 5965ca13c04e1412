# The start of the EXIT trap, behind "{ ew_x=$? HEAD". The end is reported first; the state is written behind it.
# Nothing is certain here: options, aliases, functions of any name, locale, descriptors. The first line turns off what
# would be seen or would end us; in POSIX mode a special builtin is found before a function of its name, which is how
# `builtin` is made genuine; the lines after that are read with aliases off.
POSIXLY_CORRECT=${POSIXLY_CORRECT-ew} ew_builtin= ew_code=$ew_x; \trap - DEBUG ERR RETURN; \set +aefkmnuvxCETP; } >/dev/null 2>&1
[[ ! $ew_check ]] || if \export -nf builtin; then ew_builtin=$(\typeset -f builtin); \unset -f builtin; fi >/dev/null 2>&1
[[ $POSIXLY_CORRECT != ew ]] || \builtin unset -v POSIXLY_CORRECT
\builtin shopt -u expand_aliases extdebug
ew_pwd=$PWD ew_fd=1 ew_moved=
[[ $PWD -ef . ]] || { builtin cd -P . >/dev/null 2>&1 && [[ $PWD -ef . ]] && ew_pwd=$PWD; }
ew_pwd=${ew_pwd//\%/%25} ew_pwd=${ew_pwd//;/%3B}
if [[ ! /dev/fd/1 -ef /dev/fd/193 || ! /dev/fd/2 -ef /dev/fd/193 && ! /dev/fd/2 -ef /dev/fd/194 ]]; then
	# Streams were moved, or the shell dies of a signal; then 193 is still closed, and bash's own copy of it is at 10.
	ew_moved=1 ew_fd=193
	[[ ! $ew_split || ! -e /dev/fd/194 ]] || ew_moved=2
	{ builtin : >&193; } 2>/dev/null || { ew_code="?$ew_x" && if [[ -p /dev/fd/10 ]]; then ew_fd=10; else ew_fd=1; fi; }
fi
ew_pwd="$ew_token$ew_kind$ew_code;${ew_pwd//$'\n'/%0A};$ew_moved;"
if [[ $ew_moved ]]; then builtin printf '%s' "$ew_pwd" >&"$ew_fd"; else builtin printf '%s' "$ew_pwd"; fi
[[ ! $ew_split ]] || builtin printf '%s' "${ew_token}e" 2>/dev/null >&194
