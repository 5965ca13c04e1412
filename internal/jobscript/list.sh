# All jobs, or those named in ew_ids.
printf '%s\n' "$ew_token"
if (( ! ${#ew_ids[@]} )); then
	for ew_x in "$ew_dir"/job-*.meta; do
		[[ -s $ew_x ]] || continue
		ew_x=${ew_x##*/job-}
		ew_ids[${#ew_ids[@]}]=${ew_x%.meta}
	done
fi
ew_marks=()
for ew_id in "${ew_ids[@]}"; do
	ew_load "$ew_id"
	[[ $ew_meta ]] || continue
	ew_tell
	ew_markof
	[[ ! $ew_mark ]] || ! ew_over || ew_marks[ew_mark]=1
done
ew_left
for ew_x in "${!ew_count[@]}"; do
	printf 'L %s %s\n' "$ew_x" "${ew_count[ew_x]}"
done
ew_done
