#!/bin/sh
# python-env.sh NAME PACKAGE...: a Python environment with these packages, made once
# in STRATA_CACHE (or ~/.cache/strata); prints where it is.
set -eu

name=$1
shift
cache=${STRATA_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/strata}
mkdir -p "$cache"
env=$(cd "$cache" && pwd)/$name
if [ ! -f "$env/packages" ] || [ "$(cat "$env/packages")" != "$*" ]; then
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv; } >&2 || true
    fi
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$name: python3 with venv is needed (Debian, Ubuntu: apt install python3-venv)" >&2
        exit 1
    fi
    rm -rf "$env"
    python3 -m venv "$env" >&2
    [ $# = 0 ] || "$env/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
    printf '%s\n' "$*" > "$env/packages"
fi
printf '%s\n' "$env"
