# The terminal that takes the stdout of one bash after the other, and brings the word of what has arrived. $1$2 is the mark, $4 after
# how many seconds without a word the other side is dead.
stty raw -echo -iexten || exit 97
m=$1$2 g=$4
exec 8>&1 2>/dev/null
printf "\036%s r\n" "$m"
exec 3< <(exec cat 8>&-)
trap "" PIPE
# run takes what a bash writes: $1 and $2 name the fifos.
run() {
	p=$1.$2
	(($2)) || meet "$1"
	exec 7<"$p.o" 6>"$p.a"
	(($2 < 7)) || rm -f "$1".*
	exec 5> >(exec 6<&0 <&7 7<&- 3<&-; trap - PIPE; pump o)
	exec 7<&-
	while read -r -t "$g" k n <&3 || exit; do
		case $k in
			o) printf "%s\n" "$n" >&5 ;;
			e) printf "%s\n" "$n" >&6 ;;
			k) kill -KILL -- "-$n" "$n" ;;
			z) break ;;
			q) exit ;;
		esac
	done
	exec 5>&- 6>&-
}
p=
trap "[[ ! \$p ]] || rm -f \"\${p%.*}\".*" EXIT
while read -r -t "$g" k n <&3; do
	case $k in
		b) eval "run $n" ;;
		q) break ;;
	esac
done
