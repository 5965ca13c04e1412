#!/usr/bin/env bash
# Apptainer for ordinary users, and the images that its tests start instances from.
#
# Debian 12 has no apptainer. The one of a later Debian needs a newer C library: it gets that, and two more libraries, in
# a directory of their own, so that nothing else on the machine changes. Where the packages come from is read from the
# machine's own sources of apt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

cache=/var/cache/elsewhere-testbed
libs=/opt/apptainer-libs
user=elsewhere-test
install -d -m 755 "$cache"

# debian_source prints "URI<tab>KEYRING" of the first Debian source of this machine, in whichever of the two formats.
debian_source() {
	local file line uri='' key=''
	for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/*.sources; do
		[[ -r $file ]] || continue
		uri='' key=''
		while IFS= read -r line; do
			case $line in
			URIs:*/debian | URIs:*/debian/) [[ -n $uri ]] || uri=${line#URIs:} ;;
			Signed-By:*) [[ -n $key ]] || key=${line#Signed-By:} ;;
			esac
		done <"$file"
		[[ -z $uri ]] || break
	done
	if [[ -z $uri ]]; then
		uri=$(grep -hoE '^deb[^#]*[[:space:]](\S+/debian/?)[[:space:]]' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | grep -oE '\S+/debian/?' | head -1) || true
	fi
	if [[ -z $uri ]]; then
		echo 'testbed: no source of Debian packages in /etc/apt' >&2
		return 1
	fi
	printf '%s\t%s\n' "${uri// /}" "${key// /}"
}

# fetch_packages downloads apptainer and its libraries into the cache, with lists of packages of its own.
fetch_packages() {
	local debs=$cache/apptainer-debs
	if compgen -G "$debs/apptainer_*.deb" >/dev/null && compgen -G "$debs/libc6_*.deb" >/dev/null; then
		say "packages are in the cache: $debs"
		return
	fi
	local source uri key tmp
	source=$(debian_source)
	uri=${source%%$'\t'*} key=${source#*$'\t'}
	tmp=$(mktemp -d "$cache/apptainer.XXXXXX")
	mkdir -p "$tmp"/{lists/partial,archives/partial,debs}
	local signed=${key:+"[signed-by=$key] "}
	printf 'deb %s%s %s main\n' "$signed" "$uri" sid "$signed" "$uri" trixie >"$tmp/sources.list"
	local options=(
		-o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=-
		-o "Dir::State::Lists=$tmp/lists" -o "Dir::Cache=$tmp" -o "Dir::Cache::archives=$tmp/archives"
		-o APT::Sandbox::User=root -o Acquire::Languages=none
	)
	if ! {
		apt-get -q "${options[@]}" update &&
			(cd "$tmp/debs" && apt-get -q "${options[@]}" download apptainer/sid libc6/trixie libseccomp2/trixie libsqlite3-0/trixie)
	} &>"$tmp/log"; then
		cat "$tmp/log" >&2
		rm -rf "$tmp"
		return 1
	fi
	rm -rf "$debs"
	mv "$tmp/debs" "$debs"
	rm -rf "$tmp"
	say "fetched apptainer and three libraries"
}

# install_apptainer unpacks them and lets apptainer's two programs find its own libraries.
install_apptainer() {
	if apptainer --version &>/dev/null && [[ -d /var/lib/apptainer ]]; then
		say "there is: $(apptainer --version)"
		return
	fi
	fetch_packages
	local debs=$cache/apptainer-debs tmp starter program arch
	tmp=$(mktemp -d)
	for package in libc6 libseccomp2 libsqlite3-0; do
		dpkg-deb --extract "$debs/$package"_*.deb "$tmp"
	done
	arch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || printf '%s-linux-gnu' "$(uname -m)")
	mkdir -p "$libs"
	cp -a "$tmp"/usr/lib/"$arch"/*.so* "$libs"/
	rm -rf "$tmp"
	local loader
	loader=$(compgen -G "$libs/ld-linux-*.so.*" | head -1)
	for library in "$libs"/libsqlite3.so.0 "$libs"/libseccomp.so.2; do
		patchelf --set-rpath "$libs" "$(readlink -f "$library")"
	done
	tmp=$(mktemp -d)
	dpkg-deb --extract "$debs"/apptainer_*.deb "$tmp"
	starter=usr/lib/$arch/apptainer/bin/starter
	for program in usr/bin/apptainer "$starter"; do
		patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libs" "$tmp/$program"
	done
	cp -a "$tmp"/{etc,usr,var} /
	rm -rf "$tmp"
	say "installed: $(apptainer --version)"
}

# make_rootfs makes the tree that images are made from, once for all parts.
make_rootfs() {
	local tree=$cache/rootfs
	exec {lock}>"$cache/rootfs.lock"
	flock "$lock"
	if [[ -d $tree ]]; then
		say "there is: $tree"
	else
		local source uri key new=$cache/rootfs.new log
		source=$(debian_source)
		uri=${source%%$'\t'*} key=${source#*$'\t'}
		log=$(mktemp)
		rm -rf "$new"
		if ! debootstrap --variant=minbase ${key:+--keyring="$key"} --include="$(IFS=,; echo "${in_rootfs[*]}")" bookworm "$new" "$uri" &>"$log"; then
			tail -20 "$log" >&2
			return 1
		fi
		rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/*
		mv "$new" "$tree"
		rm -f "$log"
		say "made $tree"
	fi
	exec {lock}>&-
}

# What the conformance suite wants of a place: see driver/drivertest.
in_rootfs=(procps util-linux bash-completion environment-modules virtualenvwrapper python3-venv git make)

# make_image builds a SIF file from a tree.
make_image() {
	local name=$1 tree=$2 log
	if [[ -s $cache/$name.sif ]]; then
		say "there is: $cache/$name.sif"
		return
	fi
	log=$(mktemp)
	if ! APPTAINER_CACHEDIR=$cache/apptainer-cache APPTAINER_TMPDIR=$cache apptainer build --force --mksquashfs-args '-comp gzip -Xcompression-level 1' "$cache/$name.new.sif" "$tree" &>"$log"; then
		cat "$log" >&2
		return 1
	fi
	chmod 644 "$cache/$name.new.sif"
	mv "$cache/$name.new.sif" "$cache/$name.sif"
	rm -f "$log"
	say "built $cache/$name.sif"
}

# bare_tree makes the directories that every instance needs a place for.
bare_tree() {
	mkdir -p "$1"/{bin,dev,etc,home,proc,root,sys,tmp,usr,var/tmp,run,lib,lib64}
	printf 'root:x:0:0:root:/root:/bin/bash\n' >"$1/etc/passwd"
	printf 'root:x:0:\n' >"$1/etc/group"
	: >"$1/etc/resolv.conf"
	: >"$1/etc/hosts"
}

# make_bash_only: bash and its libraries, no other program. The script that Apptainer starts an instance with is one of
# /bin/sh unless the image brings its own.
make_bash_only() {
	[[ ! -s $cache/bash-only.sif ]] || { say "there is: $cache/bash-only.sif"; return; }
	local tree library
	tree=$(mktemp -d)
	bare_tree "$tree"
	cp "$(readlink -f "$(type -P bash)")" "$tree/bin/bash"
	mkdir "$tree/.singularity.d"
	printf '#!/bin/bash\n' >"$tree/.singularity.d/startscript"
	chmod 755 "$tree/.singularity.d/startscript"
	while read -r library; do
		mkdir -p "$tree$(dirname "$library")"
		cp -L "$library" "$tree$library"
	done < <(ldd "$tree/bin/bash" | grep -oE '/[^ ]+')
	chmod 755 "$tree"
	make_image bash-only "$tree"
	rm -rf "$tree"
}

# make_no_bash: the usual tools and no bash at all.
make_no_bash() {
	[[ ! -s $cache/nobash.sif ]] || { say "there is: $cache/nobash.sif"; return; }
	local tree tool
	tree=$(mktemp -d)
	bare_tree "$tree"
	cp "$(type -P busybox)" "$tree/bin/busybox"
	for tool in sh ls cat id env sleep; do
		ln -s busybox "$tree/bin/$tool"
	done
	chmod 755 "$tree"
	make_image nobash "$tree"
	rm -rf "$tree"
}

install_packages squashfs-tools squashfuse fuse2fs fuse-overlayfs fakeroot uidmap patchelf debootstrap busybox-static util-linux
install_apptainer

if ! id "$user" &>/dev/null; then
	useradd --create-home --shell /bin/bash "$user"
	say "made user: $user"
fi
if [[ -e /dev/fuse && $(stat -c %a /dev/fuse) != 666 ]]; then
	chmod 666 /dev/fuse
	say 'opened /dev/fuse to ordinary users'
fi

make_rootfs
make_image base "$cache/rootfs"
make_bash_only
make_no_bash
