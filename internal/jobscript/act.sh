# Does ew_verb to job ew_id: send (standard input), close, signal (ew_signal), mark (that it is being killed), end (write down an end
# that its supervisor could not), remove (jobs ew_ids).
ew_answer() {
	printf '%s\n%s\n' "$ew_token" "$1"
	ew_done
}
if [[ $ew_verb == remove ]]; then
	ew_find rm && ew_rm=$ew_found || ew_rm=
	for ew_id in "${ew_ids[@]}"; do
		# The description last: what has one is not forgotten half.
		for ew_x in "$ew_dir/job-$ew_id".[!m]* "$ew_dir/job-$ew_id.meta"; do
			if [[ ! -e $ew_x && ! -L $ew_x ]]; then
				:
			elif [[ $ew_rm ]]; then
				"$ew_rm" -f -- "$ew_x"
			elif [[ -f $ew_x ]]; then
				: >|"$ew_x"
			fi
		done
	done 2>/dev/null
	ew_answer ok
fi
ew_load "$ew_id"
[[ $ew_meta ]] || ew_answer none
case $ew_verb in
mark)
	: >|"$ew_base.kill"
	ew_answer ok
	;;
end)
	[[ $ew_end ]] || printf '137 killed %s .\n' "$ew_now" >|"$ew_base.end"
	ew_answer ok
	;;
esac
if ew_over; then
	[[ $ew_verb != close ]] || ew_answer ok
	ew_answer over
fi
case $ew_verb in
signal)
	if kill -s "$ew_signal" -- "-$ew_leader" 2>/dev/null; then ew_answer ok; else ew_answer failed; fi
	;;
close)
	[[ -p $ew_base.in ]] || ew_answer deaf
	if [[ -e $ew_base.tty ]]; then
		# On a terminal a key is the end of file, and more may be typed behind it.
		printf '\004' 1<>"$ew_base.in"
		ew_answer ok
	fi
	: >|"$ew_base.eof"
	if kill -s USR1 "$ew_lead" 2>/dev/null; then ew_answer ok; else ew_answer failed; fi
	;;
send)
	[[ -p $ew_base.in ]] || ew_answer deaf
	[[ ! -e $ew_base.eof ]] || ew_answer closed
	exec 4<>"$ew_base.in"
	if ew_find cat; then
		"$ew_found" >&4
	else
		while IFS= read -r -d '' ew_x; do printf '%s\0' "$ew_x" >&4; done
		printf '%s' "$ew_x" >&4
	fi
	if (( $? )); then ew_answer failed; else ew_answer ok; fi
	;;
esac
