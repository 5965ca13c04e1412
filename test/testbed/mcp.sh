#!/usr/bin/env bash
# MCP clients that are not ours: the protocol's SDK for JavaScript, and its inspector. The inspector is the newest that runs on the
# node of Debian: version 2 wants node 22.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ./lib.sh

mkdir -p /var/cache/elsewhere-testbed
install_sdk mcp ../mcpclients/sdk
