# A job's supervisor, by builtins and, where they are there, mkfifo and dd. What stands before it sets ew_base, ew_token, ew_id, ew_call, ew_mark, ew_cap,
# ew_lifetime, ew_grace, ew_args, ew_end and ew_endargs, and for a job on a terminal ew_lead and ew_python. Nothing of the user's is defined here, but every
# variable that is not ew_ may be the job's.
# Two processes stay: one starts the job, waits for it and writes down its end; the other one writes its output into a window of eight files. A job on a
# terminal has a third one between them, which holds that.
# Standard input is the launcher's pipe, from which the job reads what it is to do.
LC_ALL=C
ew_v=$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))
(( ew_v < 401 )) || IFS= read -r -d '' ew_x # the NUL behind this text
umask 077
exec 8>&1 9<&0 </dev/null >/dev/null 2>&1

# The program $1 -> ew_found; false where there is none.
ew_find() {
	local IFS=: ew_d
	for ew_d in /usr/bin /bin ${PATH-}; do
		ew_found=$ew_d/$1
		[[ ! -f $ew_found || ! -x $ew_found ]] || return 0
	done
	ew_found=
	return 1
}

# The start time of process $1 -> ew_born, or -.
ew_birth() {
	local ew_l=
	IFS= read -r -d '' ew_l <"/proc/$1/stat"
	ew_l=${ew_l##*) }
	local IFS=' '
	set -- $ew_l
	ew_born=${20:--}
}

ew_now() {
	ew_time=-
	if [[ ${EPOCHSECONDS-} ]]; then
		ew_time=$EPOCHSECONDS
	elif (( ew_v >= 402 )); then
		printf -v ew_time '%(%s)T' -1
	elif ew_find date; then
		ew_time=$("$ew_found" +%s)
	fi
}

# A wait: reading from a pipe that nobody writes to.
ew_nap() {
	if [[ -e /dev/fd/7 || ${ew_held-} ]]; then
		if (( ew_v < 400 )); then IFS= read -r -t "${2:-1}" ew_x <&7; else IFS= read -r -t "$1" ew_x <&7; fi
	elif ew_find sleep; then
		"$ew_found" "$1" || "$ew_found" "${2:-1}"
	else
		# Here no file names a pipe.
		(( ew_v < 400 )) || eval 'coproc ew_hold { IFS= read -r ew_x; }; exec 7<&${ew_hold[0]}; ew_holder=$ew_hold_PID ew_held=1'
		IFS= read -r -t "$1" ew_x <&7
	fi
}
{ exec 7<> <(:); }

ew_index() {
	local IFS=' '
	printf '%s %s\n' "${ew_list[*]}" "$1" >|"$ew_base.log"
}

# The next file of the window. A reader knows that it was overtaken when the index does not name its file any more, so the
# index is always written first.
ew_roll() {
	((ew_at += ew_size, ew_size = 0, ew_slot = (ew_slot + 1) % 8))
	if (( ${#ew_list[@]} == 8 )); then
		ew_list=("${ew_list[@]:1}")
		ew_index .
	fi
	: >|"$ew_base.log.$ew_slot"
	ew_list[${#ew_list[@]}]=$ew_at:$ew_slot
	ew_index .
}

# One piece of output by builtins, byte for byte from bash 4 on: NUL ends a read, and is put back. False at the end.
ew_piece() {
	ew_x=
	if (( ew_v < 400 )); then
		if IFS= read -r ew_x; then ew_x+=$'\n'; elif [[ ! $ew_x ]]; then return 1; fi
		printf '%s' "$ew_x" >>"$ew_base.log.$ew_slot" && ew_size=$((ew_size + ${#ew_x}))
		return 0
	fi
	IFS= read -r -d '' -n 1 ew_x || { (( $? > 128 )); return; }
	local ew_c=.
	# A read with a time limit loses a NUL that comes just then, so one that does not wait looks whether there is more.
	while [[ $ew_c && $ew_x ]] && (( ${#ew_x} < ew_bs )) && read -r -t 0; do
		IFS= read -r -d '' -n 1 ew_c || { ew_c=. && break; }
		ew_x+=$ew_c
	done
	if [[ $ew_c && $ew_x ]]; then
		printf '%s' "$ew_x" >>"$ew_base.log.$ew_slot" && ew_size=$((ew_size + ${#ew_x}))
	else
		printf '%s\0' "$ew_x" >>"$ew_base.log.$ew_slot" && ew_size=$((ew_size + ${#ew_x} + 1))
	fi
	return 0
}

# dd writes at once what it reads, and most say how much that was; of others the file's size tells. False at the end.
ew_copy() {
	ew_x=$(LC_ALL=C exec "$ew_dd" bs="$ew_bs" count=$(((ew_chunk - ew_size) / ew_bs)) 2>&1 >>"$ew_base.log.$ew_slot")
	local ew_rc=$? ew_re='^([0-9]+) byte'
	ew_x=${ew_x##*$'\n'}
	if [[ $ew_x =~ $ew_re ]]; then
		ew_x=${BASH_REMATCH[1]}
	elif [[ $ew_wc ]] && ew_x=$(exec "$ew_wc" -c <"$ew_base.log.$ew_slot"); then
		ew_x=${ew_x//[!0-9]/}
		((ew_x -= ew_size))
	else
		ew_x=0 ew_rc=1
	fi
	((ew_size += ew_x))
	if (( ew_rc == 0 )); then
		ew_failed=0
		(( ew_x > 0 ))
		return
	fi
	# It was ended, or the disk is full: what cannot be written is lost, but the job does not stand still. One that does not
	# work at all is not used any more.
	(( ++ew_failed < 20 )) && ew_nap 0.1 || ew_dd=
	return 0
}

ew_keep() {
	trap : TERM INT HUP
	cd /
	ew_slot=0 ew_at=0 ew_size=0 ew_list=(0:0) ew_failed=0 ew_dd= ew_wc=
	ew_bs=$((ew_cap / 128 < 8192 ? ew_cap / 128 : 8192)) # a file ends when it has no room for another read of this size
	ew_chunk=$((ew_cap / 8))
	: >|"$ew_base.log.0"
	ew_index .
	ew_find dd && ew_dd=$ew_found
	ew_find wc && ew_wc=$ew_found
	while :; do
		(( ew_size + ew_bs <= ew_chunk )) || ew_roll
		if [[ $ew_dd ]]; then ew_copy; else ew_piece; fi || break
	done
	ew_index '!'
	[[ ! ${ew_holder-} ]] || kill -KILL "$ew_holder"
}

# The lifetime is over: a second bash ends the job's tree.
ew_expire() {
	ew_woken=1 ew_why=lifetime
	printf '%s\0+ %s %s %s\nK end %s\n' "$ew_end" "$ew_mark" "$ew_call" "$ew_job" "$ew_grace" |
		"$BASH" --noprofile --norc -p -c "$ew_endargs" >/dev/null 3>&- &
}

# Is $1 the script of util-linux, as of 2.27? That of 2.31 and 2.32 never ends when a signal has ended its child. Other programs of that name
# tell no exit code. ew_heeds says that one whose child has ended leaves on TERM: as of 2.35.
ew_scripts() {
	local ew_re='util-linux ([0-9]+)\.([0-9]+)'
	[[ $("$1" --version 2>&1) =~ $ew_re ]] || return
	local ew_n=$((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2]))
	ew_heeds=$((ew_n >= 2035))
	(( ew_n >= 2027 && ew_n != 2031 && ew_n != 2032 ))
}

# What holds a terminal -> ew_holds: script, which most systems have, else Python. (A Mac's python3 asks its user to install it where it
# is not.) False where there is neither.
ew_holding() {
	ew_find stty || return
	ew_stty=$ew_found ew_heeds=0
	if ew_find script && ew_scripts "$ew_found"; then
		ew_holds=("$ew_found" -qfec 'exec "$ew_bash" --noprofile --norc -p -c "$ew_lead"' /dev/null)
	elif ew_find python3 && { [[ $OSTYPE != darwin* ]] || xcode-select -p >/dev/null; } && "$ew_found" -ISc 'import fcntl, select, termios; import os; os.set_blocking'; then
		ew_holds=("$ew_found" -ISc "$ew_python" "$BASH" --noprofile --norc -p -c "$ew_lead")
	else
		return 1
	fi
}

# Becomes what holds the terminal. script starts the program that SHELL names, and a bash without -p reads a file, functions and options
# that the environment names, but for functions not before a special builtin where it is to be as POSIX says.
ew_hold() {
	ew_shell= ew_opts=
	[[ $(declare -p SHELL 2>/dev/null) != 'declare -'*x*' SHELL='* ]] || ew_shell=x$SHELL
	for ew_x in SHELLOPTS BASHOPTS; do
		[[ $(declare -p "$ew_x" 2>/dev/null) != 'declare -'*x*" $ew_x="* ]] || ew_opts+=" $ew_x"
	done
	export -n SHELLOPTS BASHOPTS 2>/dev/null
	export ew_lead ew_pid ew_bash="$BASH" ew_stty ew_shell ew_opts SHELL="$BASH" POSIXLY_CORRECT=1
	exec "${ew_holds[@]}"
}

# Has the job on the terminal told its number? -> ew_job, ew_jobborn
ew_told() {
	local IFS=' '
	ew_x=
	IFS= read -r ew_x <"$ew_base.tty"
	[[ $ew_x == *' .' ]] || return
	set -- $ew_x
	ew_job=$1 ew_jobborn=$2
}

# The job on the terminal becomes ew_job. False where it does not come to that, and then it never will: it goes on only where it was
# itself that made the file.
ew_led() {
	local ew_i ew_dead=
	for (( ew_i = 0; ew_i < 1000; ew_i++ )); do
		! ew_told || return 0
		[[ ! $ew_dead ]] || break
		kill -0 "$ew_child" || ew_dead=1
		ew_nap 0.02
	done
	set -C
	if { printf '' >"$ew_base.tty"; }; then ew_i=0; else ew_i=50; fi
	set +C
	for (( ; ew_i > 0; ew_i-- )); do # it is just writing
		! ew_told || return 0
		ew_nap 0.02
	done
	return 1
}

# script leaves when nothing has come for 10 ms since the job's end. Where what that left writes on, it is made to leave: with the job's exit
# code, which it has then.
ew_unhold() {
	trap - TERM INT HUP USR1 USR2
	while kill -0 "$ew_job" && ew_birth "$ew_job" && [[ $ew_born == "$ew_jobborn" ]]; do
		ew_nap 1
	done
	ew_nap 1
	kill -TERM "$ew_child"
}

# It cannot be started: tells why ($1). The end of what holds the terminal hangs that up.
ew_refuse() {
	[[ ! ${ew_child-} ]] || kill -KILL -- "-$ew_child"
	printf '%s%s\n' "$ew_token" "$1" >&8
	[[ ! ${ew_holder-} ]] || kill -KILL "$ew_holder"
	exit 1
}

ew_run() {
	ew_pid=${BASHPID-}
	[[ $ew_pid ]] || ew_pid=$(exec "$BASH" -c 'echo $PPID')
	ew_why=exited
	trap 'ew_woken=1' TERM INT HUP
	trap 'ew_woken=1; exec 3>&-' USR1
	trap ew_expire USR2
	[[ ! $ew_lead ]] || ew_holding || ew_refuse noprogram
	if ew_find mkfifo && "$ew_found" "$ew_base.in" && [[ -p $ew_base.in ]]; then
		# We hold both ends, so that no open waits and the end of one writer's input is not the end of all.
		exec 3<>"$ew_base.in" 5<"$ew_base.in"
	elif [[ $ew_lead ]]; then
		ew_refuse noprogram
	else
		exec 5</dev/null
	fi
	set -m
	{
		[[ ! $ew_lead ]] || ew_hold
		ulimit -S -x "$ew_mark"
		export ELSEWHERE_CALL="$ew_call"
		exec -a bash "$BASH" --noprofile --norc -p -c "$ew_args"
	} <&5 2>&1 3>&- 5<&- 7<&- 8>&- &
	ew_child=$!
	set +m
	exec 5<&- 9<&-
	cd /
	if [[ $ew_lead ]]; then
		ew_led || ew_refuse noterminal
	else
		ew_job=$ew_child
		ew_birth "$ew_job"
		ew_jobborn=$ew_born
	fi
	ew_birth "$ew_pid"
	ew_now
	ew_fifo=0
	[[ ! -p $ew_base.in ]] || ew_fifo=1
	printf '%s %s %s %s %s %s .\n' "$ew_pid" "$ew_born" "$ew_job" "$ew_jobborn" "$ew_time" "$ew_fifo" >|"$ew_base.run"
	printf '%sstarted\n' "$ew_token" >&8
	exec 8>&-
	if (( ew_lifetime > 0 )); then
		{
			trap - TERM INT HUP USR1 USR2
			ew_nap "$ew_lifetime" "$ew_lifetime"
			kill -USR2 "$ew_pid"
		} >/dev/null 3>&- &
		ew_timer=$!
	fi
	ew_watch=
	if [[ $ew_lead ]] && (( ew_heeds )); then
		ew_unhold 3>&- &
		ew_watch=$!
	fi
	while :; do
		ew_woken=
		wait "$ew_child"
		ew_code=$?
		[[ $ew_woken ]] || break
	done
	exec >/dev/null 3>&-
	for ew_x in ${ew_timer-} $ew_watch; do
		kill -KILL "$ew_x"
	done
	# All that it wrote is in the log before its end is told, unless its children hold the pipe.
	for ew_i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		IFS= read -r ew_x <"$ew_base.log"
		[[ $ew_x != *' !' ]] || break
		ew_nap 0.02
	done
	[[ ! -e $ew_base.kill ]] || ew_why=killed
	ew_now
	printf '%s %s %s .\n' "$ew_code" "$ew_why" "$ew_time" >|"$ew_base.end"
	[[ ! ${ew_holder-} ]] || kill -KILL "$ew_holder"
}

# With job control: without it both would ignore an interrupt, and the job too.
set -m
{ set +m; ew_run; } | { set +m; ew_keep; } 8>&- 9<&- &
exit 0
