#!/usr/bin/env bash
# The package, compiled with Mono against stubs of the engine's API, and its frames driven with the built library
# (PUMICE_LIBRARY).
#
#   examples/unity/tests/run.sh FOLDER     what is compiled is put there
#
# Exit 77, with the reason as the last line, where there is no Mono or no Vulkan device.
set -euo pipefail
folder=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

if ! command -v mcs >/dev/null || ! command -v mono >/dev/null; then
  echo "no Mono here (apt install mono-mcs)"
  exit 77
fi
rm -rf "$folder/package"
mkdir -p "$folder"
"$root/examples/unity/package.sh" "$PUMICE_LIBRARY" "$folder/package"
python3 -c 'import json, sys; [json.load(open(one)) for one in sys.argv[1:]]' \
  "$folder/package/package.json" "$folder/package/Runtime/Pumice.Unity.asmdef"

# Unity has C# 7.3 and later.
mcs -warnaserror -langversion:7 -target:library -out:"$folder/UnityEngine.dll" "$root"/examples/unity/stubs/*.cs
mcs -warnaserror -langversion:7 -target:library -r:"$folder/UnityEngine.dll" -out:"$folder/Pumice.Unity.dll" \
  "$folder"/package/Runtime/*.cs "$folder"/package/Runtime/Binding/*.cs
# shellcheck disable=SC2016 # backticks of Markdown
sed -n '/^```csharp$/,/^```$/{/^```/!p}' "$root/examples/unity/README.md" >"$folder/Tavern.cs"
mcs -warnaserror -r:"$folder/UnityEngine.dll" -r:"$folder/Pumice.Unity.dll" -out:"$folder/Frames.exe" \
  "$folder/Tavern.cs" "$root/examples/unity/tests/Frames.cs"
library=$folder/package/Runtime/Plugins/x86_64
LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} mono "$folder/Frames.exe" "$root/models" "$folder/data"
