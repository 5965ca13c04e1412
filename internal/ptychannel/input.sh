# The terminal that brings the stdin of one bash after the other and takes their stderr. $1$2 is the mark, $3 the home directory,
# $4 after how many seconds without a word the other side is dead.
stty raw -echo -iexten || exit 97
m=$1$2 HOME=$3 g=$4
export HOME
unset TERM PS1 PS2 COLUMNS LINES HISTFILE ZDOTDIR PROMPT_COMMAND
exec 8>&1 2>/dev/null
printf "\036%s r\n" "$m"
# What comes is read through a pipe: from a terminal read takes more than a line.
exec 3< <(exec cat 8>&-)
# run starts a bash: $1 and $2 name the fifos, $3 is how many variables follow; behind them stand its arguments. Text is moved by bash
# itself: a program for each piece costs more than all the rest.
run() {
	p=$1.$2 k=$3
	(($2)) || meet "$1"
	shift 3
	exec 7>"$p.o" 6<"$p.a"
	exec 9> >(exec 3<&- 7>&-; pump e)
	exec 4< <(exec 6<&- 7>&- 8>&- 9>&-; trap "" PIPE; while read -r -t "$g" k n <&3; do
		case $k in
			d) dd bs="$n" count=1 iflag=fullblock <&3 ;;
			t) LC_ALL=C IFS= read -r -t "$g" -N "$n" x <&3 && printf %s "$x" ;;
			T) LC_ALL=C IFS= read -r -t "$g" -N "$n" x <&3 && printf "%s\0" "$x" ;;
			c) exec >/dev/null ;;
			z) exit ;;
			q) break ;;
		esac
	done; kill $$)
	l=$!
	exec 6<&-
	# In the foreground: what is started in the background has SIGINT ignored. A session has no terminal until it opens one.
	(
		((k == 0)) || export "${@:1:k}"
		shift "$k"
		printf "\036%s s %s\n" "$m" "$BASHPID" >&8
		exec setsid bash "$@" <&4 >&7 2>&9 3<&- 4<&- 7>&- 8>&- 9>&-
	)
	x=$?
	exec 4<&- 7>&- 9>&-
	printf "\036%s x %s\n" "$m" "$x" >&8
	# Two must not read what comes at once.
	wait "$l"
}
while read -r -t "$g" k n <&3; do
	case $k in
		b) eval "run $n" ;;
		q) break ;;
	esac
done
