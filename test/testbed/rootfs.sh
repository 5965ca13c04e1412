# Sourced by the parts that make images. It needs lib.sh.

cache=/var/cache/elsewhere-testbed

# What the test image holds beside Debian's required packages.
image_packages=(
	# What the contract's tests call.
	coreutils findutils grep procps util-linux hostname git make

	# Real profiles, as in bash.sh.
	bash-completion environment-modules virtualenvwrapper python3 python3-venv
)

# make_rootfs makes $rootfs, a tar file of a small Debian of this machine's suite, from this machine's own apt sources. It
# is made once for each suite and list of packages. mmdebstrap takes a third of debootstrap's time.
make_rootfs() {
	local suite key sources=()
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	key=$(sha256sum <<<"$suite ${image_packages[*]}")
	rootfs=$cache/$suite-${key:0:12}.tar
	if [[ -f $rootfs && -s $rootfs ]]; then
		say "root file system is there: $rootfs"
		return
	fi
	mkdir -p "$cache"
	install_packages mmdebstrap
	local file
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/{debian,ubuntu}.sources; do
		[[ -s $file ]] && sources+=("$file")
	done
	rm -rf -- "$rootfs" "$rootfs.new"
	# No fsync for each file: the tree is made again if it is lost.
	if ! mmdebstrap --format=tar --variant=minbase --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
		--include="$(IFS=,; echo "${image_packages[*]}")" "$suite" "$rootfs.new" "${sources[@]}" &>"$cache/mmdebstrap.log"; then
		tail -n 20 "$cache/mmdebstrap.log" >&2
		return 1
	fi
	mv "$rootfs.new" "$rootfs"
	say "made $rootfs"
}
