#!/usr/bin/env bash
# An OpenSSH server for the tests of the ssh backend: several instances on loopback that differ in what they allow, and
# users that differ in their login shell. Where everything is stands in $root/env, which the tests read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

install_packages openssh-server openssh-client fish zsh csh tcsh dash rsync # the benchmark compares with rsync
install_packages tmux vim less htop procps python3 # for the tests with real programs on terminals

root=/var/lib/elsewhere-testbed/sshd
mkdir -p "$root/keys" /run/sshd
chmod 755 "${root%/*}" "$root" "$root/keys" # sshd reads a user's keys with that user's rights

[[ -f $root/host_key ]] || { ssh-keygen -q -t ed25519 -N '' -C elsewhere-testbed -f "$root/host_key" && say 'made the host key'; }
[[ -f $root/client_key ]] || { ssh-keygen -q -t ed25519 -N '' -C elsewhere-testbed -f "$root/client_key" && say 'made the client key'; }

# One user for each login shell, all with the same key. A locked account is refused, hence a password that fits nothing.
# Linux's limits here are those of the container: an ordinary user needs none of his own.
for login in bash fish zsh csh tcsh dash; do
	user=elsewhere-ssh-$login
	shell=$(command -v "$login")
	if [[ $(getent passwd "$user" | cut -d: -f7) != "$shell" ]]; then
		id "$user" &>/dev/null || useradd --create-home "$user"
		usermod --shell "$shell" --password '*' "$user"
		say "made user: $user ($shell)"
	fi
	# The tests add keys of their own here, each with a home of its own in its environment.
	cmp -s "$root/client_key.pub" "$root/keys/$user" || { install -m 644 "$root/client_key.pub" "$root/keys/$user" && say "keys of $user"; }
done

# A user who may run one program by sudo, with a password that only root can read.
install_packages sudo
user=elsewhere-ssh-sudo
if [[ ! -s $root/sudo_password ]] || ! id "$user" &>/dev/null; then
	id "$user" &>/dev/null || useradd --create-home --shell "$(command -v bash)" "$user"
	(umask 077; head -c 18 /dev/urandom | base64 >"$root/sudo_password.new")
	printf '%s:%s\n' "$user" "$(<"$root/sudo_password.new")" | chpasswd
	mv "$root/sudo_password.new" "$root/sudo_password"
	say "made user: $user"
fi
install -m 644 "$root/client_key.pub" "$root/keys/$user"
printf '%s ALL=(root) /usr/bin/id\n' "$user" >/etc/sudoers.d/elsewhere-testbed
chmod 440 /etc/sudoers.d/elsewhere-testbed

printf 'Authorized use only. \\ "quoted" !\nSecond line.\n' >"$root/banner"

# instance NAME PORT OPTION... starts one server unless it runs with this very configuration.
instance() {
	local name=$1 port=$2 config pid
	config="# $name
Port $port
ListenAddress 127.0.0.1
HostKey $root/host_key
AuthorizedKeysFile $root/keys/%u
PidFile $root/$name.pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitUserEnvironment yes
PrintMotd no
Subsystem sftp internal-sftp"
	for option in "${@:3}"; do config+=$'\n'$option; done
	pid=$(cat "$root/$name.pid" 2>/dev/null || :)
	if [[ $pid && $(cat "$root/$name.conf" 2>/dev/null) == "$config" ]] && grep -aq "$root/$name.conf" "/proc/$pid/cmdline" 2>/dev/null; then
		say "sshd runs: $name, port $port"
	else
		[[ ! $pid ]] || ! grep -aq "$root/$name.conf" "/proc/$pid/cmdline" 2>/dev/null || kill "$pid"
		printf '%s\n' "$config" >"$root/$name.conf"
		rm -f "$root/$name.pid" # one of a server that is gone would pass for the new one's
		for _ in {1..50}; do
			/usr/sbin/sshd -f "$root/$name.conf" -E "$root/$name.log" && break
			sleep 0.1 # the one before still holds the port
		done
		for _ in {1..50}; do
			[[ ! -s $root/$name.pid ]] || break
			sleep 0.1
		done
		[[ -s $root/$name.pid ]] || { cat "$root/$name.log" >&2; return 1; }
		say "started sshd: $name, port $port"
	fi
	printf '%s=%s\n' "$name" "$port" >>"$root/env.new"
}

: >"$root/env.new"
instance main 42210
instance max1 42211 'MaxSessions 1'
instance max2 42212 'MaxSessions 2'
instance banner 42213 "Banner $root/banner"
mv "$root/env.new" "$root/env"
