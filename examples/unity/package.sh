#!/usr/bin/env bash
# Puts the Unity package together: these components, the C# binding and the built library.
#
#   examples/unity/package.sh LIBRARY FOLDER     LIBRARY: libpumice.so or pumice.dll; FOLDER: Packages/org.pumice.characters
set -euo pipefail
library=$1
folder=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

mkdir -p "$folder/Runtime/Binding" "$folder/Runtime/Plugins/x86_64"
cp "$here/package.json" "$here/README.md" "$folder"
cp "$here"/Runtime/* "$folder/Runtime"
cp "$here"/../../bindings/csharp/Pumice/*.cs "$folder/Runtime/Binding"
# Unity wants the name without versions.
cp -L "$library" "$folder/Runtime/Plugins/x86_64/$(basename "$library" | sed 's/\.so\..*/.so/')"
