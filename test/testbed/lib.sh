# Sourced by the parts.

# say prints one line of what a part did.
say() { printf '  %s\n' "$*"; }

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
