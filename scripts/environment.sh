#!/usr/bin/env bash
# Makes the virtual environment and installs Deepstone with torch into it: environment.sh FOLDER [EXTRA…]
# PYTHON names the interpreter to use, TORCH what to install as torch (empty: none, or one that is there already).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
shift
extras=$(IFS=,; echo "$*")
torch=${TORCH-torch==2.13.0}

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  for candidate in ${PYTHON:-} python3.11 python3 python3.12 python3.13; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  echo "deepstone needs Python 3.11 or newer; install it, or name it: make quick PYTHON=/path/to/python" >&2
  exit 4
}

make_venv() {
  if "$1" -m venv "$folder" 2>/dev/null; then return; fi
  # Debian keeps venv in a package of its own.
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -qq -y python3-venv
    "$1" -m venv "$folder" && return
  fi
  echo "cannot make a virtual environment with $1; install the venv module (on Debian: apt install python3-venv)" >&2
  exit 4
}

if ! "$folder/bin/python" -c '' 2>/dev/null; then
  rm -rf "$folder"
  make_venv "$(find_python)"
fi
if [ -n "$torch" ]; then
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$torch" 'numpy<3'
fi
"$folder/bin/pip" install --quiet --disable-pip-version-check -e ".${extras:+[$extras]}"
