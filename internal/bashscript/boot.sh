# What every bash of ours runs first, before a command (see the package comment). `ew_` names are ours and gone when
# the command starts. Up to "load" nothing of the user's is defined, so plain words are bash's own; after it a user's
# function may have any name but `builtin`, so everything but reserved words goes through `builtin`.

ew_self=$BASH_EXECUTION_STRING

# Values that would change how this text is read are put aside until the command starts.
ew_late=
for ew_x in LC_ALL TMOUT POSIXLY_CORRECT; do
	[[ ${!ew_x+x} ]] || continue
	printf -v ew_q 'builtin export %s=%q;' "$ew_x" "${!ew_x}"
	ew_late+=$ew_q
	unset -v "$ew_x"
done
LC_ALL=C
shopt -s extglob
(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 401 )) || ew_n=-N
[[ ! $ew_n || $ew_self == exit ]] || IFS= read -r -d '' ew_x # the NUL behind this text

# The next message goes into BASH_EXECUTION_STRING; end of file is a failure. A message is its length in bytes, a
# newline, the text, and a NUL for a bash before 4.1, which cannot count.
ew_read() {
	IFS= builtin read -r ${TMOUT+-t 2000000} ew_x && BASH_EXECUTION_STRING= || builtin return 1
	[[ ! $ew_n || $ew_x == 0 ]] || IFS= builtin read -r ${TMOUT+-t 2000000} -N "$ew_x" BASH_EXECUTION_STRING || builtin return 1
	if [[ $ew_n ]]; then
		IFS= builtin read -r -d '' ew_x
	else
		IFS= builtin read -r -d '' BASH_EXECUTION_STRING
	fi
}

# Message 1: ew_token, ew_mark, ew_slot, ew_from, ew_head, ew_record, ew_boot, ew_drop.
ew_read && eval "$BASH_EXECUTION_STRING" || exit 0
exec 193>&1 194>&2 2>&1
trap : EXIT # so that the signals that end a shell are set up by now
ulimit -S -x "$ew_mark" 2>/dev/null
[[ $ew_from ]] || ew_umask=$(umask)
umask 077
for ew_x in "${ew_drop[@]}"; do
	: >"$ew_x"
done 2>/dev/null
# In braces: of a file that was cut short nothing is run.
ew_bad=
{ [[ ! $ew_boot ]] || printf '{\n%s\n}\n' "$ew_self" >"$ew_boot" || ew_bad=boot; } 2>/dev/null
{ printf '# %s %s\n' "$ew_record" "$$" >"$ew_slot"; } 2>/dev/null || ew_bad=slot

# Load: the state alone says what is exported; only what is never saved stays as it was when this bash started.
ew_lost=
if [[ $ew_from ]]; then
	ew_keep=
	for ew_x in @NEVER@; do
		[[ ${!ew_x+x} ]] && printf -v ew_q 'export %s=%q;' "$ew_x" "${!ew_x}" && ew_keep+=$ew_q
	done
	if (( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404 )) && mapfile -d '' -t ew_env <"/proc/$$/environ"; then
		unset -v "${ew_env[@]%%=*}"
	else
		compgen -e >>"$ew_slot" && while IFS= read -r ew_x; do unset -v "$ew_x"; done <"$ew_slot"
	fi 2>/dev/null
	eval "$ew_keep"
	ew_vars= ew_funcs=
	. "$ew_from" >/dev/null 2>&1 </dev/null
	LC_ALL=C
	if [[ ! $ew_vars ]]; then
		ew_bad=state
	elif [[ ! $ew_funcs ]]; then
		# One function that bash printed but cannot read has cost all after it: load them one by one.
		ew_text= ew_name= ew_in=
		while IFS= builtin read -r ew_x || [[ $ew_x ]]; do
			if [[ $ew_in && ( $ew_x == *' () ' || $ew_x == ew_funcs=* ) ]]; then
				[[ ! $ew_name ]] || builtin eval "$ew_text" || ew_lost+="$ew_name "
				ew_text= ew_name=${ew_x% () }
			fi
			ew_text+=$ew_x$'\n'
			[[ $ew_x != ew_vars=* ]] || ew_in=1 ew_text=
		done >/dev/null 2>&1 <"$ew_from"
	fi
fi
builtin cd /
builtin printf '%s' "${ew_token}R$$;$BASH_VERSION;$ew_bad;${ew_lost//;/};"
[[ $ew_bad != state ]] || builtin exit 0

# Message 2: ew_cwd, ew_dir, ew_stdin, ew_split, ew_trap, ew_check, ew_names, ew_set, ew_last, and the command, which goes where
# bash -c keeps it. What is printed before the B report is not the command's, so nothing is muted.
ew_read && builtin eval "$BASH_EXECUTION_STRING" || builtin exit 0

# The directory: the session's own or its nearest ancestor that is left; one named for this call or none.
ew_at=$ew_cwd ew_failed=
until builtin cd -- "$ew_at" || [[ $ew_at == / ]]; do
	ew_at=${ew_at%/*}
	ew_at=${ew_at:-/}
done
if [[ $ew_dir ]]; then
	case $ew_dir in
	/*) ;;
	'~' | '~/'*) ew_dir=${HOME-}${ew_dir:1} ;;
	*) ew_dir=./$ew_dir ;;
	esac
	builtin cd -- "$ew_dir" || ew_failed=$(builtin cd -- "$ew_dir" 2>&1 >/dev/null)
fi
if [[ ${ew_oldpwd-} ]]; then OLDPWD=$ew_oldpwd; else builtin unset -v OLDPWD; fi
builtin export PWD OLDPWD

# What this call's own variables hide is put back into the state afterwards.
# The state's values of the names in ew_late are not in force yet. A value is text: the attributes that would evaluate or
# change it are taken off for the call.
ew_restore=
builtin eval "${ew_late//builtin export /ew_was_}"
for ew_x in "${ew_names[@]}"; do
	ew_q=$ew_x ew_attr=
	case $ew_x in
	LC_ALL | TMOUT | POSIXLY_CORRECT) ew_q=ew_was_$ew_x ;;
	*) (( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404 )) || builtin eval "ew_attr=\${$ew_x@a}" ;;
	esac
	if [[ ${!ew_q+x} ]]; then
		builtin printf -v ew_q 'builtin export %s=%q\n' "$ew_x" "${!ew_q}"
	else
		ew_q="builtin unset -v $ew_x"$'\n'
	fi
	ew_attr=${ew_attr//[!ilu]/}
	if [[ $ew_attr ]]; then
		builtin declare +ilu "$ew_x"
		ew_q="builtin declare -g +ilu $ew_x"$'\n'"${ew_q}builtin declare -g$ew_attr $ew_x"$'\n'
	fi
	ew_restore+=$ew_q
done
ew_late+=$ew_last
[[ ! $ew_restore ]] || ew_restore="{ $ew_restore} 2>/dev/null"$'\n'
[[ ! $ew_dir ]] || builtin printf -v ew_restore '%sPWD=%q OLDPWD=%q\n' "$ew_restore" "$ew_at" "${ew_oldpwd-}"
builtin eval "$ew_set"

ew_at=${ew_at//\%/%25} ew_at=${ew_at//;/%3B}
ew_failed=${ew_failed#*: line *: } ew_failed=${ew_failed//\%/%25} ew_failed=${ew_failed//;/%3B}
if [[ $ew_failed ]]; then
	builtin printf '%s' "${ew_token}B${ew_at//$'\n'/%0A};${ew_failed//$'\n'/%0A};"
	builtin trap - EXIT
	builtin exit 126
fi

# From here the shell is the command's: its locale and options, its EXIT trap (the report and the dump), nothing of ours.
[[ ! ${ew_builtin-} ]] || ew_check=1
[[ ! ${ew_builtin-} ]] && ! builtin declare -F trap || ew_trap=
ew_head="{ ew_x=\$? $ew_head ew_split=$ew_split ew_check=$ew_check ew_trap=$ew_trap" ew_text=$ew_report$ew_restore$ew_dump
builtin trap -- "$ew_head ew_kind=E $ew_text" EXIT
if [[ $ew_trap ]]; then
	# The command sets an EXIT trap of its own: then ours runs first, in a subshell, and the command's action after it,
	# with the same $? and options. What the command lists is what it set.
	builtin printf -v ew_x '%q' "$ew_head ew_kind=E $ew_text"
	builtin printf -v ew_q '%q' "if ( $ew_head ew_kind=P $ew_text"$'\n'"builtin exit \"\$ew_x\" ); then"$'\n'
	builtin eval "trap() {
		builtin local status
		(( BASH_SUBSHELL == 0 )) && [[ \${1-} != -l ]] || { builtin trap \"\$@\"; builtin return; }
		case \${1--p} in
		-p | -P)
			if [[ \${ew_action+x} ]]; then builtin trap -- \"\$ew_action\" EXIT; else builtin trap - EXIT; fi
			builtin trap \"\$@\"
			status=\$?
			;;
		*)
			builtin trap \"\$@\" || builtin return
			status=0
			[[ \$1 != -- ]] || builtin shift
			[[ \$#\$1 == 1EXIT || \$#\$1 == 10 || \" \${*:2} \" == *' EXIT '* || \" \${*:2} \" == *' 0 '* ]] || builtin return 0
			if [[ \$# == 1 || \$1 == - || ! \$1 ]]; then builtin unset ew_action; else ew_action=\$1; fi
			;;
		esac
		if [[ \${ew_action+x} ]]; then
			builtin trap -- $ew_q\"\$ew_action\"\$'\\nelse\\n'\"\$ew_action\"\$'\\nfi' EXIT
		else
			builtin trap -- $ew_x EXIT
		fi
		builtin return \$status
	}"
fi
# One command, so that it is read before the user's aliases count. Where the user has a function `exec`, the builtin is found
# in POSIX mode only.
{
	! builtin declare -F exec || POSIXLY_CORRECT=y
	case $ew_stdin$ew_split in
	'') \exec </dev/null 194>&- ;;
	1) [[ $ew_stdin ]] || \exec </dev/null 2>&194
		[[ $ew_split ]] || \exec 194>&- ;;
	2) \exec 0<&1 194>&- ;;
	*) \exec 2>&194 ;;
	esac
	[[ ! ${POSIXLY_CORRECT+x} ]] || { builtin unset -v POSIXLY_CORRECT && builtin shopt -u inherit_errexit; }
	builtin unset -v LC_ALL
	[[ $ew_from ]] || builtin umask "$ew_umask"
	[[ ${ew_extglob-} ]] || builtin shopt -u extglob
	builtin set +p
	builtin declare SECONDS=0
	[[ ! $ew_split ]] || builtin printf '%s' "${ew_token}b" >&2
	builtin printf '%s' "${ew_token}B${ew_at//$'\n'/%0A};;"
	[[ ! $ew_late ]] || builtin eval "$ew_late" 2>/dev/null
	# A user's function of this one name is defined as late as can be, in front of the command.
	if [[ ${ew_builtin-} ]]; then
		BASH_EXECUTION_STRING=$ew_builtin$'\nshopt -s expand_aliases\n'$BASH_EXECUTION_STRING
	else
		builtin shopt -s expand_aliases
	fi
	builtin unset -f ew_read
	builtin unset -v "${!ew_@}"
}
