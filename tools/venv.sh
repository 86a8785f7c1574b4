# Sourced by ./demo, ./check and .ci/run: makes a virtual environment with this package and its test tools, once.
# usage: make_venv DIRECTORY; sets VENV_PYTHON. PYTHON chooses the interpreter (3.11 or newer).

# Images often forbid Python to keep compiled modules: every process of the tests would compile numpy and onnx anew.
unset PYTHONDONTWRITEBYTECODE

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            command -v "$candidate"
            return
        fi
    done
    echo "tilewright needs Python 3.11 or newer; set PYTHON to one" >&2
    return 1
}

make_venv() {
    local directory=$1 stamp
    stamp=$directory/.installed
    VENV_PYTHON=$directory/bin/python
    if [ ! -f "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
        local python
        python=$(find_python)
        echo "setting up $directory with $python" >&2
        "$python" -m venv "$directory"
        # --no-compile: modules are compiled when they are imported, which few of those of the libraries are
        "$VENV_PYTHON" -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[test,bench]' >&2 \
            || "$VENV_PYTHON" -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[test]' >&2
        touch "$stamp"
    fi
}
