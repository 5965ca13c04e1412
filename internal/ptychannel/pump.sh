# meet makes the fifos by which the two relays meet, for eight bashes at once; each is used by one bash alone.
meet() {
	mkfifo -m 600 "$1".{0..7}.{o,a}
}
# pump passes stdin on to the terminal, at most 64 pieces ahead of what is known to have arrived, which comes by descriptor 6. Whoever
# stands between drops a reader that does not keep up. When the terminal is gone it goes on reading, so that nobody who still
# writes is hurt.
pump() {
	trap "exec setsid cat >/dev/null 2>&1 6<&- 8>&-" HUP
	s=0 a=0 i=0
	while r=$(LC_ALL=C exec dd bs=4080 count=16 2>&1 >&8); do
		z=${r%%" records in"*} n=${r##*out}
		z=${z##*[^0-9+]} n=${n#?}
		((s += ${n%% *}, h[i & 7] = s))
		((z < 16)) && break
		while read -t 0 -u 6; do
			read -r -u 6 b || break
			((a = b > a ? b : a))
		done
		while ((i > 3 && a < h[(i - 4) & 7])); do
			read -r -t 300 -u 6 b || exec setsid cat >/dev/null 2>&1 6<&- 8>&-
			((a = b > a ? b : a))
		done
		((++i))
	done
	printf "\036%s %s\n" "$m" "$1" >&8
}
