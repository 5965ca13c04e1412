# The leader of a terminal that is a person's, where the provider cuts off what is shown when the leader ends: it runs a program as the
# job in front, says how that ended behind all that was shown, and waits until it is ended itself. $1$2 is the mark.
m=$1$2
shift 2
printf "\036%s r\n" "$m"
# Its standard error is the terminal whose jobs bash controls.
set -m
"$@"
x=$?
# What is stopped has nobody else who could wake it.
while [[ $(jobs -s) ]]; do
	fg >/dev/null
	x=$?
done
set +m
exec 2>/dev/null
stty raw -echo
printf "\036%s x %s\n" "$m" "$x"
exec sleep 30
