# Output of job ew_id from byte ew_after on, at most ew_max bytes; where there is none, and it has not ended, after at most
# ew_wait tenths of a second. Then what list says of it.

# Passes on at most $2 bytes of file $1 from $3 on -> ew_any says that there were any.
ew_pass() {
	local ew_skip=$3 ew_c
	ew_any=
	exec 6<"$1" || return
	if (( ew_skip > 0 )); then
		if [[ $ew_dd ]]; then
			# It moves the place at which the next one reads.
			"$ew_dd" bs="$ew_skip" skip=1 count=0 <&6 >/dev/null
		else
			while (( ew_skip > 0 )); do
				IFS= read -r -d '' -n "$((ew_skip < 65536 ? ew_skip : 65536))" -u 6 ew_c || break
				if (( ${#ew_c} < (ew_skip < 65536 ? ew_skip : 65536) )); then ((ew_skip -= ${#ew_c} + 1)); else ((ew_skip -= ${#ew_c})); fi
			done
		fi
	fi
	if IFS= read -r -d '' -n 1 -u 6 ew_c; then
		ew_any=1
		[[ $ew_begun ]] || { printf 'F %s\n' "$ew_pos" && ew_begun=1; }
		if [[ $ew_c ]]; then printf '%s' "$ew_c"; else printf '\0'; fi
		if (( $2 > 1 )); then
			if [[ $ew_head ]]; then "$ew_head" -c "$(($2 - 1))" <&6; else ew_builtin "$(($2 - 1))"; fi
		fi
	fi
	exec 6<&-
} 2>/dev/null

# The next $1 bytes of descriptor 6 by builtins.
ew_builtin() {
	local ew_n=$1 ew_m ew_c ew_rc
	while (( ew_n > 0 )); do
		ew_m=$((ew_n < 65536 ? ew_n : 65536))
		IFS= read -r -d '' -n "$ew_m" -u 6 ew_c
		ew_rc=$?
		if (( ew_rc == 0 && ${#ew_c} < ew_m )); then
			printf '%s\0' "$ew_c"
			((ew_n -= ${#ew_c} + 1))
		else
			printf '%s' "$ew_c"
			((ew_n -= ${#ew_c}))
		fi
		(( ew_rc == 0 )) || break
	done
}

# The window's index, whole -> ew_line; false where there is none.
ew_window() {
	local ew_i
	for (( ew_i = 0; ew_i < 50; ew_i++ )); do
		ew_first "$ew_base.log"
		[[ $ew_line != *' '[.!] ]] || return 0
		[[ -e $ew_base.log ]] || return 1
		(( ew_i < 20 )) || ew_nap 0.02 # it is just being written
	done
	return 1
}

# What there is -> ew_begun says that there was some. ew_valid is how much of it is certain, -1 for all.
ew_emit() {
	local ew_i ew_n ew_list ew_part ew_left=$ew_max ew_sent=0 IFS=' '
	while (( ew_left > 0 )); do
		ew_window || return 0
		ew_list=(${ew_line% *})
		ew_n=${#ew_list[@]}
		if (( ew_pos < ${ew_list[0]%:*} )); then
			[[ ! $ew_begun ]] || return 0
			ew_pos=${ew_list[0]%:*}
		fi
		for (( ew_i = ew_n - 1; ew_pos < ${ew_list[ew_i]%:*}; ew_i-- )); do :; done
		ew_part=$ew_left
		if (( ew_i < ew_n - 1 && ${ew_list[ew_i + 1]%:*} - ew_pos < ew_part )); then
			ew_part=$((${ew_list[ew_i + 1]%:*} - ew_pos))
		fi
		ew_pass "$ew_base.log.${ew_list[ew_i]#*:}" "$ew_part" "$((ew_pos - ${ew_list[ew_i]%:*}))"
		ew_window
		if [[ " $ew_line" != *" ${ew_list[ew_i]} "* ]]; then
			# The window has rolled over what was just read. In a flood only its youngest file can be read in time.
			[[ $ew_any ]] || continue
			if (( ew_sent > 0 || ++ew_tries > 20 )); then
				ew_valid=$ew_sent
				return 0
			fi
			ew_pos=${ew_line% *}
			ew_pos=${ew_pos##* }
			ew_pos=${ew_pos%:*}
			[[ $ew_pos ]] || ew_pos=$ew_after
			printf '%sX %s\n' "$ew_token" "$ew_pos"
			continue
		fi
		if (( ew_i == ew_n - 1 )); then
			# What stood before was overrun, and the youngest file was still empty.
			[[ ! $ew_any ]] && (( ew_tries > 0 && ew_sent == 0 && ++ew_tries <= 20 )) || return 0
			continue
		fi
		((ew_pos += ew_part, ew_left -= ew_part, ew_sent += ew_part))
	done
}

ew_dd= ew_head= ew_begun= ew_tries=0 ew_valid=-1 ew_pos=$ew_after
ew_find dd && ew_dd=$ew_found
ew_find head && ew_head=$ew_found
SECONDS=0
for (( ew_i = 0; ; ew_i++ )); do
	ew_load "$ew_id"
	ew_emit
	[[ ! $ew_begun ]] || break
	[[ $ew_meta ]] || break
	! ew_over || break
	(( ew_i < ew_wait && SECONDS * 10 <= ew_wait )) || break
	ew_nap 0.1
done
[[ $ew_begun ]] || printf 'F %s\n' "$ew_pos"
printf '%s\nV %s\n' "$ew_token" "$ew_valid"
ew_marks=()
if [[ $ew_meta ]]; then
	ew_tell
	ew_markof
	if [[ $ew_mark && ! $ew_begun && $ew_wait == 0 ]] && ew_over; then
		ew_marks[ew_mark]=1
		ew_left
		for ew_x in "${!ew_count[@]}"; do
			printf 'L %s %s\n' "$ew_x" "${ew_count[ew_x]}"
		done
	fi
fi
ew_done
