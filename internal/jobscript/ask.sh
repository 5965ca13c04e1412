# What every question about jobs starts with. Before it stand ew_dir and ew_token and what the question needs.
LC_ALL=C
ew_v=$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))
(( ew_v < 401 )) || IFS= read -r -d '' ew_x # the NUL behind this text
umask 077
{ exec 7<> <(:); } 2>/dev/null

ew_find() {
	local IFS=: ew_d
	for ew_d in /usr/bin /bin ${PATH-}; do
		ew_found=$ew_d/$1
		[[ ! -f $ew_found || ! -x $ew_found ]] || return 0
	done
	ew_found=
	return 1
}

ew_nap() {
	if [[ -e /dev/fd/7 || ${ew_held-} ]]; then
		if (( ew_v < 400 )); then IFS= read -r -t 1 ew_x <&7; else IFS= read -r -t "$1" ew_x <&7; fi
	elif ew_find sleep; then
		"$ew_found" "$1" || "$ew_found" 1
	else
		(( ew_v < 400 )) || eval 'coproc ew_hold { IFS= read -r ew_x; }; exec 7<&${ew_hold[0]}; ew_holder=$ew_hold_PID ew_held=1'
		IFS= read -r -t "$1" ew_x <&7
	fi 2>/dev/null
}

# The first line of file $1 -> ew_line.
ew_first() {
	ew_line=
	{ IFS= read -r ew_line <"$1"; } 2>/dev/null
}

# Is process $1, which started at $2, there and one of job $3's?
ew_lives() {
	local ew_l= ew_job=$3
	[[ ${1-} && $1 != *[!0-9]* ]] || return 1
	if [[ ! -r /proc/$$/stat ]]; then
		kill -0 "$1" 2>/dev/null
		return
	fi
	{ IFS= read -r -d '' ew_l <"/proc/$1/stat"; } 2>/dev/null
	local ew_p=$1 ew_s=$2
	local IFS=' '
	set -- ${ew_l##*) }
	[[ ${20-} && $1 != [ZX] && ( $ew_s == - || ${20} == "$ew_s" ) ]] || return 1
	# A number and a time may be another's after the machine was started again.
	[[ -r /proc/$ew_p/environ ]] || return 0
	while IFS= read -r -d '' ew_l; do
		[[ $ew_l != "ELSEWHERE_SESSION=$ew_job" ]] || return 0
	done <"/proc/$ew_p/environ"
	return 1
} 2>/dev/null

# All that is written down of job $1, and whether its supervisor or the job itself lives. What cannot be read this time is as it was
# before: a line may be just being written.
ew_load() {
	[[ ${ew_base-} == "$ew_dir/job-$1" ]] || ew_meta= ew_run= ew_end= ew_log=
	ew_base=$ew_dir/job-$1
	ew_first "$ew_base.meta" && ew_meta=$ew_line
	ew_first "$ew_base.run" && ew_run=$ew_line
	ew_first "$ew_base.end" && ew_end=$ew_line
	ew_first "$ew_base.log" && ew_log=$ew_line
	ew_alive=0 ew_lead=
	if [[ $ew_run == *' .' ]]; then
		local ew_sid=${ew_meta#*\"supervisor\":\"} IFS=' '
		ew_sid=${ew_sid%%\"*}
		set -- $ew_run
		ew_lead=$1 ew_leader=$3
		if ew_lives "$1" "$2" "$ew_sid" || ew_lives "$3" "$4" "$ew_sid"; then
			ew_alive=1
		elif [[ $ew_end != *' .' ]]; then
			ew_first "$ew_base.end" && ew_end=$ew_line
		fi
	fi
	[[ $ew_end == *' .' ]] || ew_end=
}

# Has it ended, or is it lost?
ew_over() { [[ $ew_end || $ew_run == *' .' && $ew_alive == 0 ]]; }

ew_tell() { printf 'M %s\nR %s\nE %s\nI %s\nA %s\n' "$ew_meta" "$ew_run" "$ew_end" "$ew_log" "$ew_alive"; }

# The processes that carry the mark of a job that has ended: ew_marks[mark] is set by the caller, ew_count[mark] here.
ew_left() {
	local ew_d ew_m ew_s
	local -a ew_l
	ew_count=()
	(( ${#ew_marks[@]} )) || return 0
	for ew_d in /proc/[0-9]*; do
		if (( ew_v >= 400 )); then
			mapfile -t -n 32 ew_l <"$ew_d/limits"
		else
			ew_l=()
			while IFS= read -r ew_m; do ew_l[${#ew_l[@]}]=$ew_m; done <"$ew_d/limits"
		fi
		for ew_m in "${ew_l[@]}"; do
			[[ $ew_m == 'Max file locks '* ]] || continue
			ew_m=${ew_m#Max file locks}
			ew_m=${ew_m#"${ew_m%%[! ]*}"}
			ew_m=${ew_m%% *}
			if [[ $ew_m != *[!0-9]* && ${ew_marks[ew_m]+x} ]]; then
				IFS= read -r -d '' ew_s <"$ew_d/stat"
				[[ ${ew_s##*) } == [ZX]* || ! $ew_s ]] || ew_count[ew_m]=$((${ew_count[ew_m]-0} + 1))
			fi
			break
		done
		ew_l=()
	done 2>/dev/null
}

# The mark of the job that was loaded -> ew_mark.
ew_markof() {
	ew_mark=${ew_meta#*\"mark\":}
	ew_mark=${ew_mark%%[!0-9]*}
}

# The whole of an answer was sent.
ew_done() {
	printf '%s.\n' "$ew_token"
	[[ ! ${ew_holder-} ]] || kill -KILL "$ew_holder" 2>/dev/null
	exit 0
}
