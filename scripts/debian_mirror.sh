#!/usr/bin/env bash
# Print the address of the Debian mirror that apt uses on this machine, or PUMICE_DEBIAN_MIRROR; nothing
# where apt knows none.
set -euo pipefail

if [[ -n ${PUMICE_DEBIAN_MIRROR:-} ]]; then
  echo "$PUMICE_DEBIAN_MIRROR"
  exit 0
fi
# shellcheck disable=SC2016  # apt's own placeholders
found=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
  sed -n 's/^Debian|Debian|//p' | head -n 1) || true
[[ -n $found ]] ||  # no package lists here: look at the sources themselves
  found=$(grep -hoE '[a-z+]+:[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    head -n 1 | tr -d ' ') || true
[[ -z $found ]] || echo "$found"
