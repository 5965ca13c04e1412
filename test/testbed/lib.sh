# Sourced by the parts.

# say prints one line of what a part did.
say() { printf '  %s\n' "$*"; }

# Where the parts that run have their sockets, pids and logs.
run=/run/elsewhere-testbed

# install_packages installs the named Debian packages that are not there yet. The package lists are fetched only when
# apt cannot do without: they are the slow part.
install_packages() {
	local name missing=()
	for name; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
	done
	if [[ ${#missing[@]} -eq 0 ]]; then
		say "packages are there: $*"
		return
	fi
	local log
	log=$(mktemp)
	if ! apt_get install "${missing[@]}" &>"$log"; then
		say 'apt-get update'
		apt_get update &>"$log" && apt_get install "${missing[@]}" &>"$log" || {
			cat "$log" >&2
			return 1
		}
	fi
	rm -f "$log"
	say "installed: ${missing[*]}"
}

apt_get() {
	DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends -o DPkg::Lock::Timeout=60 "$@" </dev/null
}

# start NAME SECONDS READY COMMAND... starts a program in the background, with $run/NAME.pid and $run/NAME.log, unless
# READY succeeds already, and waits for READY.
start() {
	local name=$1 seconds=$2 ready=$3 deadline
	mkdir -p "$run"
	shift 3
	if $ready; then
		say "$name answers"
		return
	fi
	# In /: a service outlives the checkout.
	setsid -f bash -c 'echo $$ >"$0"; cd /; exec "$@"' "$run/$name.pid" "$@" </dev/null &>"$run/$name.log"
	deadline=$((SECONDS + seconds))
	until $ready; do
		if ((SECONDS >= deadline)); then
			printf 'testbed: %s does not answer after %d s; the end of %s:\n' "$name" "$seconds" "$run/$name.log" >&2
			tail -n 20 "$run/$name.log" >&2
			return 1
		fi
		sleep 0.2
	done
	say "started $name (pid $(<"$run/$name.pid"), log $run/$name.log)"
}

# install_sdk NAME DIR installs what DIR's package-lock.json names into the cache, once for each lock file.
install_sdk() {
	local cache=/var/cache/elsewhere-testbed lock
	local target=$cache/$1-sdk
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
