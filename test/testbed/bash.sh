#!/usr/bin/env bash
# What the tests of the contract and of the local backend need beside bash itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

packages=(
	# Real profiles: what users source before their first command.
	bash-completion     # hundreds of functions, extglob
	environment-modules # `module` is a function that evals; MODULEPATH in the environment
	virtualenvwrapper   # functions and hooks written by Python at start
	python3-venv        # a venv activated in one call and used in the next

	# Other far sides of a file transfer.
	libarchive-tools # bsdtar
	busybox-static   # tar, stat, xargs and sha256sum of another kind
	zstd

	# What the tests look with.
	tmux       # a person's terminal
	procps     # ps, pgrep: processes as others see them
	util-linux # setsid, prlimit
	bsdutils   # script: a pseudo-terminal around a command

	# The race detector is C.
	gcc
	libc6-dev
)
install_packages "${packages[@]}"

# Root passes every permission test, so these run themselves again as this user.
user=elsewhere-test
if id "$user" &>/dev/null; then
	say "user is there: $user"
else
	useradd --create-home --shell /bin/bash "$user"
	say "made user: $user"
fi
