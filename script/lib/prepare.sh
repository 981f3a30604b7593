# Install what a new machine lacks: Debian packages, .venv, and the Node.js packages of the tests. Sourced by
# script/server and script/test at the root of the repository.

say() { printf '%s\n' "$*" >&2; }

# Set $python. The system's own comes before another one on the PATH: the packages below belong to it, and distributions
# compile it with profile-guided optimization. One that pyenv compiles may take 1.5 times as long.
find_python() {
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then return 0; fi
    done
    say "Gatehouse needs Python 3.11 or newer as python3."
    exit 1
}

# install_packages NAME...: install these Debian packages, or print the command to type.
install_packages() {
    if ! command -v apt-get >/dev/null 2>&1; then
        say "This machine lacks what Debian calls: $*. Install it, then start again."
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        say "Some system packages are missing. Type this line, then start again:"
        say ""
        say "    sudo apt-get update && sudo apt-get install -y --no-install-recommends $*"
        exit 1
    fi
    say "Installing system packages: $*"
    # A machine's package lists may be older than the packages that still exist.
    for attempt in first second; do
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; then
            return 0
        fi
        [ $attempt = second ] || apt-get update -qq >/dev/null || true
    done
    say "apt-get could not install them. Type this line to see why:"
    say "    apt-get update && apt-get install -y --no-install-recommends $*"
    exit 1
}

# Print the names of the packages that requirements.txt needs: mysqlclient is built from source.
missing_build_packages() {
    find_python
    "$python" -c 'import ensurepip, venv' 2>/dev/null || printf 'python3-venv '
    command -v cc >/dev/null 2>&1 || printf 'build-essential '
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' || printf 'python3-dev '
    command -v pkg-config >/dev/null 2>&1 || printf 'pkg-config '
    pkg-config --exists libmariadb 2>/dev/null || pkg-config --exists mysqlclient 2>/dev/null || printf 'libmariadb-dev '
}

# prepare_venv FILE...: install into .venv what the FILEs pin. Do nothing if they are unchanged.
prepare_venv() {
    wanted=$(cat "$@" | sha256sum | cut -d' ' -f1)
    stamp=.venv/installed-$(printf '%s' "$*" | tr -c 'a-z.' '-')
    if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    # One at a time: a server and a test run may be started side by side in a fresh clone.
    exec 9<script/lib/prepare.sh
    ! command -v flock >/dev/null 2>&1 || flock 9
    find_python
    missing=$(missing_build_packages)
    # shellcheck disable=SC2086
    [ -z "$missing" ] || install_packages $missing
    .venv/bin/python -c 'import pip' 2>/dev/null || "$python" -m venv --clear .venv
    say "Installing what $* pins into .venv (once, and again when it changes)"
    requirements=
    for file in "$@"; do requirements="$requirements -r $file"; done
    # shellcheck disable=SC2086
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes $requirements
    printf '%s' "$wanted" >"$stamp"
    exec 9<&-
}

# prepare_node FOLDER: install into FOLDER/node_modules what FOLDER/package-lock.json pins, without running scripts of
# packages. Do nothing if it is unchanged.
prepare_node() {
    wanted=$(sha256sum <"$1/package-lock.json" | cut -d' ' -f1)
    stamp=$1/node_modules/installed
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    exec 9<script/lib/prepare.sh
    ! command -v flock >/dev/null 2>&1 || flock 9
    say "Installing what $1/package-lock.json pins (once, and again when it changes)"
    (cd "$1" && npm ci --ignore-scripts --silent)
    printf '%s' "$wanted" >"$stamp"
    exec 9<&-
}
