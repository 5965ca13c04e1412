#!/usr/bin/env bash
# Docker Engine, the images that the tests of the docker backend run, and two registries on 127.0.0.1 to pull from. An
# engine that answers on the socket is used as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh
. ./rootfs.sh

registry=127.0.0.1:5000      # anybody may pull
auth_registry=127.0.0.1:5001 # only user elsewhere, password test

mkdir -p "$cache"

engine_answers() { timeout 5 docker version &>/dev/null; }
registry_answers() { timeout 5 curl -fsS "http://$registry/v2/" &>/dev/null; }
auth_registry_answers() { timeout 5 curl -fsS -u elsewhere:test "http://$auth_registry/v2/" &>/dev/null; }

install_packages docker.io iptables ca-certificates curl docker-registry busybox-static
start dockerd 60 engine_answers dockerd

make_rootfs
image=elsewhere-test/debian
label=elsewhere-test.recipe

# build NAME DIR builds an image from DIR/Dockerfile unless the one that is there was built from the same files.
build() {
	local name=$1 dir=$2 recipe
	recipe=$(cd "$dir" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum)
	recipe=${recipe:0:12}-$(docker image inspect -f '{{slice .Id 7 19}}' "$image" 2>/dev/null || echo base)
	if [[ $(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$name" 2>/dev/null) == "$recipe" ]]; then
		say "image is there: $name"
		return
	fi
	DOCKER_BUILDKIT=0 docker build -q --label "$label=$recipe" -t "$name" "$dir" &>"$run/build.log" || {
		cat "$run/build.log" >&2
		return 1
	}
	say "built $name"
}

# A plain Debian. Imported, not built: its recipe is the tar file's name.
if [[ $(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null) == "${rootfs##*/}" ]]; then
	say "image is there: $image"
else
	docker import -c 'CMD ["bash"]' -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
		-c "LABEL $label=${rootfs##*/}" "$rootfs" "$image" >/dev/null
	say "imported $image"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# variant NAME makes the context of an image from the Dockerfile on standard input.
variant() {
	mkdir -p "$work/$1"
	cat >"$work/$1/Dockerfile"
}

variant user <<-END # an ordinary user with a home
	FROM $image
	RUN useradd --create-home --uid 1000 --shell /bin/bash someone
	USER 1000
END

variant nonroot-nohome <<-END # a uid that passwd does not know
	FROM $image
	USER 4242
END

variant readonly-tmp <<-END # a /tmp that only root can write to
	FROM $image
	RUN chmod 0755 /tmp
END

variant noprocps <<-END # bash, sed, grep, find and awk; no coreutils, no procps, no util-linux
	FROM $image
	RUN rm -f \$(dpkg -L coreutils procps util-linux bsdutils | grep -E '^(/usr)?/s?bin/')
END

variant nobash <<-END
	FROM scratch
	COPY busybox /bin/busybox
	RUN ["/bin/busybox", "--install", "-s", "/bin"]
	CMD ["/bin/sh"]
END
cp /bin/busybox "$work/nobash/busybox"

variant bash-only <<-END # bash and its libraries, no other program
	FROM scratch
	COPY root /
	CMD ["/bin/bash"]
END
mkdir -p "$work"/bash-only/root/{bin,tmp,root}
chmod 1777 "$work/bash-only/root/tmp"
cp /bin/bash "$work/bash-only/root/bin/bash"
ldd /bin/bash | grep -o '/[^ ]*' | while read -r lib; do
	install -D "$lib" "$work/bash-only/root$lib"
done

variant s6 <<-END
	FROM $image
	COPY init /init
	ENTRYPOINT ["/init"]
END
cat >"$work/s6/init" <<'END'
#!/bin/bash
# What matters of s6-overlay's /init: it insists on being process 1, runs programs that it puts into /run, reaps, and ends
# with the command that it was given.
if [[ $$ -ne 1 ]]; then
	echo 's6-overlay-suexec: fatal: can only run as pid 1' >&2
	exit 100
fi
if ! cp /bin/true /run/s6-probe || ! /run/s6-probe; then
	echo 's6-overlay: fatal: cannot run programs from /run' >&2
	exit 111
fi
"$@" &
child=$!
trap 'kill -TERM "$child"' TERM
while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done
exit "$code"
END
chmod 755 "$work/s6/init"

for name in user nonroot-nohome readonly-tmp noprocps nobash bash-only s6; do
	build "elsewhere-test/$name" "$work/$name"
done

# An image for another kind of processor. No engine runs it here, so its content does not matter.
other=arm64
[[ $(uname -m) != aarch64 ]] || other=amd64
if [[ $(docker image inspect -f '{{.Architecture}}' elsewhere-test/otherarch 2>/dev/null) == "$other" ]]; then
	say 'image is there: elsewhere-test/otherarch'
else
	mkdir -p "$work/otherarch"
	tar -C "$work/bash-only/root" -cf "$work/otherarch/layer.tar" .
	diff=$(sha256sum "$work/otherarch/layer.tar")
	printf '{"architecture":"%s","os":"linux","config":{"Cmd":["/bin/bash"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
		"$other" "${diff%% *}" >"$work/otherarch/config.json"
	echo '[{"Config":"config.json","RepoTags":["elsewhere-test/otherarch:latest"],"Layers":["layer.tar"]}]' >"$work/otherarch/manifest.json"
	tar -C "$work/otherarch" -cf - manifest.json config.json layer.tar | docker load >/dev/null
	say "loaded elsewhere-test/otherarch ($other)"
fi

# registry_config ADDRESS DIR prints a registry's settings; those for who may pull follow on standard input.
registry_config() {
	printf 'version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: %s\n' "$2" "$1"
	cat
}
registry_config "$registry" "$cache/registry" </dev/null >"$run/registry.yml"
start registry 20 registry_answers docker-registry serve "$run/registry.yml"

perl -e 'print "elsewhere:", crypt("test", q($2y$05$elsewhereelsewhereelse)), "\n"' >"$run/htpasswd"
registry_config "$auth_registry" "$cache/registry" >"$run/auth-registry.yml" <<-END
	auth:
	  htpasswd:
	    realm: elsewhere-test
	    path: $run/htpasswd
END
start auth-registry 20 auth_registry_answers docker-registry serve "$run/auth-registry.yml"

# Both serve the same files. The tests pull the small image; the large one is for looking at the progress.
for name in bash-only debian otherarch; do
	have=$(docker image inspect -f '{{.Id}}' "elsewhere-test/$name")
	mark=$cache/registry/pushed-$name
	if [[ -e $mark && $(<"$mark") == "$have" ]]; then
		say "pushed already: $registry/elsewhere-test/$name"
		continue
	fi
	docker tag "elsewhere-test/$name" "$registry/elsewhere-test/$name"
	docker push -q "$registry/elsewhere-test/$name" >/dev/null
	docker image rm "$registry/elsewhere-test/$name" >/dev/null
	echo "$have" >"$mark"
	say "pushed $registry/elsewhere-test/$name"
done
