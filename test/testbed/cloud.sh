#!/usr/bin/env bash
# What the emulators of the clouds run their sandboxes with: bubblewrap, and the tree of Debian that Apptainer's images are
# made of too. And the vendors' own SDKs, which have to work against the emulators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

cache=/var/cache/elsewhere-testbed
install_packages bubblewrap util-linux
[[ -d $cache/rootfs ]] || { echo 'testbed: no tree: bring up apptainer first' >&2; exit 1; }

# install_sdk NAME DIR installs what DIR's package-lock.json names into the cache, once for each lock file.
install_sdk() {
	local target=$cache/$1-sdk lock
	lock=$(sha256sum <"$2/package-lock.json")
	if [[ -f $target/installed && $(<"$target/installed") == "$lock" ]]; then
		say "the SDK of $1 is there"
		return
	fi
	command -v npm >/dev/null || install_packages nodejs npm
	rm -rf "$target"
	mkdir -p "$target"
	cp "$2/package.json" "$2/package-lock.json" "$target"
	(cd "$target" && npm ci --omit=dev --ignore-scripts --no-audit --no-fund) &>"$cache/$1-sdk.log" || { tail -n 20 "$cache/$1-sdk.log" >&2; return 1; }
	printf '%s\n' "$lock" >"$target/installed"
	say "installed the SDK of $1"
}
install_sdk daytona ../cloud/daytona/sdk
install_sdk vercel ../cloud/vercel/sdk
