# The terminal that takes the bash's stdout, and brings the word of what has arrived. $1$2 is the mark, $3 the fifos' name, $4 after how
# many seconds without a word the other side is dead.
stty raw -echo -iexten || exit 97
m=$1$2 p=$3
exec 8>&1 2>/dev/null
printf "\036%s r\n" "$m"
exec 3< <(exec cat 8>&-)
mkfifo -m 600 "$p.o" "$p.a"
exec 7<"$p.o" 6>"$p.a"
rm -f "$p.o" "$p.a"
exec 5> >(
	exec 4>&6 6<&0 <&7 7<&- 3<&-
	pump o
	# The other side says when it has all; one that is gone does not. While stderr is open its pump has to be told.
	trap "" PIPE
	while sleep 60 && printf "0\n" >&4; do :; done
	kill $$
)
exec 7<&-
trap "" PIPE
while read -r -t "$4" k n <&3; do
	case $k in
		o) printf "%s\n" "$n" >&5 ;;
		e) printf "%s\n" "$n" >&6 ;;
		k) kill -KILL -- "-$n" "$n" ;;
		q) break ;;
	esac
done
