#!/usr/bin/env bash
# Podman's service on a socket of its own, and the images of docker.sh, as localhost/elsewhere-test/*. It needs that part.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

socket=$run/podman.sock

install_packages podman runc catatonit netavark aardvark-dns curl

# Without systemd, and where root may not raise limits, Podman starts no container with its own defaults. crun, its own
# choice, does not know cgroup v1 and v2 side by side. After each exec it keeps a process for five minutes unless told otherwise,
# and its answers become slower with their number.
conf=/etc/containers/containers.conf
settings='# elsewhere-testbed
[containers]
default_ulimits = ["nofile=10000:10000", "nproc=20000:20000"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
exit_command_delay = 30
events_logger = "file"'
if [[ -e $conf && $(head -n 1 "$conf") != '# elsewhere-testbed' ]]; then
	say "left alone: $conf, which is not ours"
elif [[ -e $conf && $(<"$conf") == "$settings" ]]; then
	say "settings are there: $conf"
else
	mkdir -p "${conf%/*}"
	printf '%s\n' "$settings" >"$conf"
	say "wrote $conf"
	# A service that runs has the settings of its start.
	if [[ -e $run/podman.pid ]] && kill "$(<"$run/podman.pid")" 2>/dev/null; then
		while kill -0 "$(<"$run/podman.pid")" 2>/dev/null; do sleep 0.1; done
	fi
fi

podman_answers() { timeout 5 curl -fsS --unix-socket "$socket" http://podman/_ping &>/dev/null; }
start podman 30 podman_answers podman system service --time=0 "unix://$socket"

missing=()
for name in debian user nonroot-nohome readonly-tmp noprocps nobash bash-only s6 otherarch; do
	want=$(docker image inspect -f '{{.Id}}' "elsewhere-test/$name")
	[[ sha256:$(podman image inspect -f '{{.Id}}' "localhost/elsewhere-test/$name" 2>/dev/null) == "$want" ]] || missing+=("elsewhere-test/$name")
done
if [[ ${#missing[@]} -eq 0 ]]; then
	say 'images are there: localhost/elsewhere-test/*'
	exit
fi
archive=$(mktemp)
trap 'rm -f "$archive"' EXIT
docker save -o "$archive" "${missing[@]}"
podman load -q -i "$archive" >/dev/null
for name in "${missing[@]}"; do
	# What an archive calls NAME is docker.io/NAME to Podman.
	if ! podman image exists "localhost/$name"; then
		podman tag "docker.io/$name" "localhost/$name"
		podman untag "localhost/$name" "docker.io/$name" &>/dev/null || :
	fi
	say "loaded localhost/$name"
done
