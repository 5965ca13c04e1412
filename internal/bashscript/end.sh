# Ends process trees, by builtins alone. A bash that runs this reads requests, one a line:
#   + MARK ID PID   watch a call (PID - while unknown; a second line for MARK replaces the first)
#   - MARK          it ended
#   S MARK ID       watch a session: it ends with the watcher
#   s MARK          no longer
#   L SECONDS       from now on no line for so long means what the end of file means
#   B               a line like any other
#   D PATH          a file to remove now (%20 is a blank, %25 a percent sign)
#   R PATH          a directory to remove at the end of file
#   K TOKEN GRACE   end all that is watched now, in at most GRACE milliseconds and one second, answer, and leave
# End of file ends all that is watched, unasked: that is how a process that was killed cleans up behind itself. Where the far end
# learns of that by nothing, USR1 is taken for the end of file.
trap 'exec </dev/null' USR1
LC_ALL=C
(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 401 )) || IFS= read -r -d '' ew_rest # the NUL behind this text
(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404 )) || ew_new=1
{ exec 9<> <(:); } 2>/dev/null # now: when it is needed there may be no process left to fork
ew_call=() ew_session=() ew_lease= ew_remove= ew_grace=2000 ew_patience=900 ew_seen=() ew_other=()

# The time in milliseconds.
ew_now() {
	if [[ ${EPOCHREALTIME-} ]]; then ew_time=${EPOCHREALTIME/[.,]/} && ew_time=${ew_time%???}; else ew_time=$((SECONDS * 1000)); fi
}

# A short wait without a fork: reading from a pipe that we hold at both ends.
ew_nap() {
	if [[ -e /dev/fd/9 ]]; then
		if (( BASH_VERSINFO[0] < 4 )); then read -r -t 1 <&9; else read -r -t "$1" <&9; fi
	else
		sleep "$1" || sleep 1
	fi 2>/dev/null
}

# A file's lines, or with "-d ''" its NUL-terminated parts, between spaces -> ew_all.
ew_slurp() {
	local line
	ew_all=' '
	if [[ $ew_new ]]; then
		mapfile -t "${@:2}" ew_lines <"$1" && ew_all=" ${ew_lines[*]} "
	else
		while IFS= read -r "${@:2}" line; do ew_all+="$line "; done <"$1"
	fi 2>/dev/null
}

# What follows the first $1 in ew_all, up to a space -> ew_value; false where it is not there. (${ew_all#*"$1"} would take a
# time that grows with the square of the length.)
ew_after() {
	local before=${ew_all%%"$1"*}
	[[ $before != "$ew_all" ]] || return 1
	ew_value=${ew_all:${#before}+${#1}:64}
	ew_value=${ew_value#"${ew_value%%[! ]*}"}
	ew_value=${ew_value%% *}
}

# Is the process in directory $1 marked as one of ours, by its limits or its environment?
ew_marked() {
	ew_slurp "$1/limits"
	if ew_after 'Max file locks ' && [[ $ew_value != *[!0-9]* ]]; then
		[[ ! ${ew_call[ew_value]+x} && ! ${ew_session[ew_value >> 31]+x} ]] || return 0
	fi
	ew_slurp "$1/environ" -d ''
	ew_after ' ELSEWHERE_CALL=' && [[ $ew_ids == *" $ew_value "* ]] && return
	ew_after ' ELSEWHERE_SESSION=' && [[ $ew_ids == *" $ew_value "* ]]
}

# What stands behind the name, which may hold anything, in process $1's stat -> ew_line whole, ew_stat. (To search from the end takes
# twenty times as long.)
ew_status() {
	ew_line= ew_stat=
	IFS= read -r -d '' ew_line <"/proc/$1/stat"
	ew_stat=${ew_line#*) }
	[[ $ew_stat != *')'* ]] || ew_stat=${ew_line##*) }
}

# The living processes of what is watched -> ew_found[pid]=name; false where there are none. One that was found stays so,
# also when its parent is gone: ew_seen[pid] is when it started. With an argument those that were not ours are not looked at again.
ew_scan() {
	local dir pid line more quick=$1
	local -a parent born
	ew_found=() ew_parent=() ew_group=() parent=() born=()
	if [[ ! -r /proc/$$/stat ]]; then
		for pid in $ew_pids; do
			[[ $pid != - ]] && kill -0 -- "-$pid" && ew_found[pid]=group
		done 2>/dev/null
		(( ${#ew_found[@]} ))
		return
	fi
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		[[ $pid != $$ && $pid != $PPID ]] || continue
		[[ ! $quick || ! ${ew_other[pid]+x} ]] || continue
		# A name may hold a newline. A process whose first thread has ended looks like a zombie while others run.
		ew_status "$pid"
		set -- $ew_stat
		[[ ${20-} && $1 != X ]] && [[ $1 != Z || ${18} -gt 1 ]] || continue
		if [[ ${ew_other[pid]-} == "${20}" ]]; then
			parent[pid]=$2 born[pid]=${20}
		elif [[ ${ew_seen[pid]-} == "${20}" || $ew_pids == *" $3 "* || $ew_pids == *" $4 "* || $ew_pids == *" $pid "* ]] ||
			{ (( ${20} >= ew_since && (${7} & 0x200000) == 0 )) && ew_marked "$dir"; }; then
			line=${ew_line#*(} line=${line%)*}
			ew_found[pid]=${line//$'\n'/?} ew_seen[pid]=${20} ew_parent[pid]=$2 ew_group[pid]=$3
		else
			# What is not marked now never will be; only its parent may turn out to be ours. (0x200000 is a thread of the kernel.)
			parent[pid]=$2 born[pid]=${20} ew_other[pid]=${20}
		fi
	done 2>/dev/null
	more=1
	while [[ $more ]]; do
		more=
		for pid in "${!parent[@]}"; do
			[[ ${ew_found[parent[pid]]+x} ]] || continue
			ew_found[pid]='child of '${parent[pid]} ew_seen[pid]=${born[pid]} ew_parent[pid]=${parent[pid]} more=1
			unset "parent[$pid]"
		done
	done
	(( ${#ew_found[@]} ))
}

# Was process $1 started by one that got its TERM and still lives, or by a child of such? Then it is what that one cleans up
# with, as an EXIT trap does, and has the grace.
ew_cleans() {
	[[ ${ew_first-} && ${ew_seen[$1]-0} -ge 10#$ew_first ]] || return 1
	local parent=${ew_parent[$1]-0}
	[[ ${ew_found[parent]+x} ]] && { [[ $ew_sent == *" $parent "* ]] || ew_cleans "$parent"; }
}

# Signal $1 to all that was found; TERM once to each.
ew_signal() {
	local pid target
	for pid in "${!ew_found[@]}"; do
		target=$pid
		[[ ${ew_found[pid]} != group ]] || target=-$pid
		if [[ $1 == KILL ]]; then
			kill -KILL -- "$target" && ew_refused=0
		elif [[ $ew_groups == *" ${ew_group[pid]-} "* && ${ew_seen[pid]} -lt 10#${ew_first:-0} ]]; then
			ew_sent+="$pid " # with its group
		elif [[ $ew_sent != *" $pid "* ]] && ! ew_cleans "$pid"; then
			ew_sent+="$pid "
			kill -TERM -- "$target" && kill -CONT -- "$target"
		fi
	done 2>/dev/null
}

# TERM to the groups of the bashes that are there -> ew_groups, at once: to look at all processes takes long where there are many.
# ew_first is when, in hundredths of a second as start times are; ew_since is the start time of the oldest process that can be
# ours: that of the oldest bash, where all are known and there.
ew_leaders() {
	local pid since= all=1
	ew_groups=' ' ew_since=0 ew_first=
	{ read -r ew_first pid </proc/uptime; } 2>/dev/null
	ew_first=${ew_first/.}
	for pid in $ew_pids; do
		[[ $pid == - ]] || ew_status "$pid"
		set -- $ew_stat
		if [[ $pid == - || ! ${20-} ]] || ! ew_marked "/proc/$pid"; then
			all=
			continue
		fi
		[[ $since && $since -le ${20} ]] || since=${20}
		[[ $3 != "$pid" ]] || ! kill -TERM -- "-$pid" || ew_groups+="$pid "
		kill -CONT -- "-$pid"
	done 2>/dev/null
	[[ ! $all || ${#ew_session[@]} -gt 0 ]] || ew_since=${since:-0}
}

# TERM, the grace, KILL; the last scan's ew_found is what could not be ended. Where that is all another user's, whom a KILL is not for,
# nobody waits: the answer has to come in time.
ew_end() {
	local until nap=0.02 more quick=
	ew_sent=' ' ew_ids=" ${ew_session[*]} " ew_pids=' ' ew_refused=0
	for ew_id in "${ew_call[@]}"; do
		ew_ids+="${ew_id% *} " ew_pids+="${ew_id#* } "
	done
	ew_now && until=$((ew_time + ew_grace))
	ew_leaders
	more=TERM
	while ew_scan "$quick" || { [[ $quick ]] && ew_scan ''; }; do
		quick=1
		ew_now
		if (( ew_time >= until )); then
			[[ $more == TERM ]] || break
			more=KILL nap=0.02
			(( until += ew_patience ))
		fi
		[[ $more == TERM ]] || (( ++ew_refused )) # unless one takes it
		ew_signal "$more"
		(( ew_refused < 3 )) || break # once may be one that ended meanwhile
		ew_nap "$nap"
		[[ $more == KILL ]] || nap=0.1
	done
}

while read -r $ew_lease ew_verb ew_mark ew_id ew_pid; do
	case $ew_verb in
	L) ew_lease="-t $ew_mark" ;;
	[DR])
		ew_x=${ew_mark//%20/ } ew_x=${ew_x//%25/%}
		if [[ $ew_verb == R ]]; then ew_remove=$ew_x; elif [[ -f $ew_x ]]; then rm -f -- "$ew_x" || : >"$ew_x"; fi 2>/dev/null
		;;
	+) ew_call[ew_mark]="$ew_id $ew_pid" ;;
	-) unset "ew_call[$ew_mark]" ;;
	S) ew_session[ew_mark]=$ew_id ;;
	s) unset "ew_session[$ew_mark]" ;;
	K)
		ew_grace=$ew_id
		ew_end
		for ew_pid in "${!ew_found[@]}"; do
			printf '%s %s %s\n' "$ew_mark" "$ew_pid" "${ew_found[ew_pid]}"
		done
		printf '%s .\n' "$ew_mark"
		exit 0
		;;
	esac
done
(( ${#ew_call[@]} + ${#ew_session[@]} == 0 )) || { ew_patience=20000; ew_end; } # nobody waits, and nobody comes after
if [[ $ew_remove == /* ]]; then
	rm -rf -- "$ew_remove" || for ew_x in "$ew_remove"/*; do : >"$ew_x"; done
fi 2>/dev/null
exit 0
