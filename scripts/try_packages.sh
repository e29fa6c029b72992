#!/usr/bin/env bash
# Install the Debian packages beside this script, run the program with the model it brings, build minimal.c beside them
# with the library, and remove all. For a machine that is thrown away: scripts/fresh_machine.sh --packages runs it in one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

apt-get -qq update
apt-get -qq install -y --no-install-recommends mesa-vulkan-drivers gcc libc6-dev pkg-config ./*.deb >/dev/null
model=/usr/share/pumice/pumice-stories.gguf

# The words that it begins with, and the command that tells it.
tells_a_story() {
  local said
  said=$("${@:2}")
  printf '%s\n' "$said"
  [[ $said == "$1"* && ${#said} -gt 60 ]]
}
tells_a_story ' there was' pumice run -m $model -p 'Once upon a time' -n 40 --temp 0
zcat /usr/share/man/man1/pumice-run.1.gz | grep -q '^\.TH PUMICE'
# shellcheck source=/dev/null
source /usr/share/bash-completion/completions/pumice
complete -p pumice
# Two words where there are options for several libraries.
# shellcheck disable=SC2046
cc minimal.c -o minimal $(pkg-config --cflags --libs pumice)
tells_a_story 'Once upon a time' ./minimal $model
apt-get -qq purge -y 'pumice*' 'libpumice*' >/dev/null
[[ ! -e /usr/bin/pumice && ! -e /usr/share/pumice ]]
