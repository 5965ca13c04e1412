#!/usr/bin/env bash
# What the emulators of the clouds run their sandboxes with: bubblewrap, and the tree of Debian that Apptainer's images are
# made of too. And the vendors' own SDKs, which have to work against the emulators.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

cache=/var/cache/elsewhere-testbed
install_packages bubblewrap util-linux
[[ -d $cache/rootfs ]] || { echo 'testbed: no tree: bring up apptainer first' >&2; exit 1; }

install_sdk daytona ../cloud/daytona/sdk
install_sdk vercel ../cloud/vercel/sdk
