#!/usr/bin/env bash
# The C# sources on the built library (PUMICE_LIBRARY), under Mono: their tests, and the README's program.
#
#   bindings/csharp/tests/run.sh FOLDER     what is compiled is put there
#
# Exit 77, with the reason as the last line, where there is no Mono.
set -euo pipefail
folder=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

python3 -B "$root/tools/bindings.py" --check
if ! command -v mcs >/dev/null || ! command -v mono >/dev/null; then
  echo "no Mono here (apt install mono-mcs)"
  exit 77
fi
mkdir -p "$folder"
library=$(dirname "$PUMICE_LIBRARY")
export LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Unity has C# 7.3 and later.
mcs -warnaserror -langversion:7 -target:library -out:"$folder/Pumice.dll" "$root"/bindings/csharp/Pumice/*.cs
mcs -warnaserror -r:"$folder/Pumice.dll" -out:"$folder/Tests.exe" "$root/bindings/csharp/tests/Tests.cs"
"$root/bindings/tests/readme.sh" "$folder" "$root/bindings/csharp/README.md" csharp cs
mono "$folder/Tests.exe" "$root/models/pumice-stories.gguf" "$folder/pirate.gguf"

cd "$folder"
for program in program1 program2; do
  mcs -warnaserror -r:Pumice.dll -out:$program.exe $program.cs
  mono $program.exe | tee $program.output
done
grep -qxE 'yes|no' program1.output
grep -qx '10' program1.output
tail -n 1 program2.output | grep -q 'there was'
