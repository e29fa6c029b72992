#!/usr/bin/env bash
# The project in Godot without a window: the extension that was built in FOLDER, its scene, and characters driven frame by
# frame.
#
#   examples/godot/tests/run.sh FOLDER
#
# Needs PUMICE_GODOT. Exit 77, with the reason as the last line, where there is no Godot 4 or no Vulkan device.
set -euo pipefail
folder=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ -n ${PUMICE_GODOT_MISSING:-} ]]; then
  echo "not built here: it needs $PUMICE_GODOT_MISSING"
  exit 77
fi
if [[ -z ${PUMICE_GODOT:-} ]]; then
  echo "built, but there is no Godot 4 here to run it (-DPUMICE_GODOT=)"
  exit 77
fi
python3 - "$folder"/addons/pumice/libpumice.so.* <<'PYTHON' || exit 77
import ctypes, sys
n = ctypes.c_size_t()
ctypes.CDLL(sys.argv[1]).pumice_device_list(None, ctypes.c_size_t(0), ctypes.byref(n))
sys.exit(None if n.value else print("no Vulkan device here") or 1)
PYTHON

rm -rf "$folder/project" "$folder/user"
mkdir -p "$folder/project/addons" "$folder/project/.godot" "$folder/user"
cp -r "$here"/project/. "$here/tests/check.gd" "$here/tests/check.tscn" "$folder/project"
cp -r "$folder/addons/pumice" "$folder/project/addons"
cp "$here/../../models/pumice-stories.gguf" "$folder/project/model.gguf"
# What the editor writes when a project is first opened. (Without a window, the editor of 4.6 crashes when it then ends:
# godotengine/godot#111048.)
echo res://addons/pumice/pumice.gdextension >"$folder/project/.godot/extension_list.cfg"
export HOME=$folder/user  # user://

run() {
  timeout 280 "$PUMICE_GODOT" --headless --path "$folder/project" "$@" 2>&1 | tee "$folder/output"
  ! grep -E 'SCRIPT ERROR|Parse Error|crashed|leaked at exit' "$folder/output"
}
run
grep -q '^Cat: ' "$folder/output"
grep -q '^Dog: ' "$folder/output"
[[ $(grep -cE '^(Cat|Dog) goes to: (home|park)$' "$folder/output") == 2 ]]
run res://check.tscn
grep -qx 'checked, with 0 failures' "$folder/output"
