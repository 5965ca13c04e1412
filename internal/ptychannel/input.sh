# The terminal that brings the bash's stdin and takes its stderr. $1$2 is the mark, $3 the fifos' name, $4 after how
# many seconds without a word the other side is dead, $5 the home directory, $6 how many variables follow; behind them stand the
# bash's arguments.
stty raw -echo -iexten || exit 97
m=$1$2 p=$3 g=$4 HOME=$5 k=$6
shift 6
export HOME
unset TERM PS1 PS2 COLUMNS LINES HISTFILE ZDOTDIR PROMPT_COMMAND
exec 8>&1 2>/dev/null
printf "\036%s r\n" "$m"
# What comes is read through a pipe: from a terminal read takes more than a line.
exec 3< <(exec cat 8>&-)
mkfifo -m 600 "$p.o" "$p.a"
exec 7>"$p.o" 6<"$p.a"
exec 9> >(exec 3<&- 7>&-; pump e)
w=$!
exec 4< <(exec 6<&- 7>&- 8>&- 9>&-; while read -r -t "$g" k n <&3; do
	case $k in
		d) dd bs="$n" count=1 iflag=fullblock <&3 ;;
		c) exec >&- ;;
		q) kill $$ ;;
	esac
done; kill $$)
exec 3<&- 6<&-
# In the foreground: what is started in the background has SIGINT ignored. A session has no terminal until it opens one.
(
	((k == 0)) || export "${@:1:k}"
	shift "$k"
	printf "\036%s s %s\n" "$m" "$BASHPID" >&8
	exec setsid bash "$@" <&4 >&7 2>&9 4<&- 7>&- 8>&- 9>&-
)
x=$?
exec 4<&- 7>&- 9>&-
printf "\036%s x %s\n" "$m" "$x" >&8
wait "$w"
# The other side says when it has all; one that is gone does not.
exec sleep 60
