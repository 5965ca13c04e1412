#!/usr/bin/env bash
# What the emulators of the clouds run their sandboxes with: bubblewrap, and the tree of Debian that Apptainer's images are
# made of too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

install_packages bubblewrap util-linux
[[ -d /var/cache/elsewhere-testbed/rootfs ]] || { echo 'testbed: no tree: bring up apptainer first' >&2; exit 1; }
