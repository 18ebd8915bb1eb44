#!/usr/bin/env bash
# Makes the virtual environment that the peers run in: target/bench-compare.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${CARGO_TARGET_DIR:-target}/bench-compare
if [[ ! -x $venv/bin/python ]]; then
  python3 -m venv "$venv"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.2.6
"$venv/bin/python" -c 'import numpy; print("numpy", numpy.__version__)'
