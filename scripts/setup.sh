#!/bin/sh
# Installs and builds what is missing: packages, an Engine, the compiled program, the images. `setup.sh packages` installs
# the packages only; `setup.sh programs` does all but the images. Prints nothing if nothing is missing. POSIX sh, because
# the machine may have no suitable Node yet.
set -eu
cd "$(dirname "$0")/.."
node=node_modules/.bin/node
# Packages and program are for all users of the machine, and hold no secret.
umask 022

# Debian's package of the Engine comes from another host than those of npm, so both are fetched at the same time.
installing=
if [ "${1:-}" != packages ] && [ "$(id -u)" -eq 0 ] && [ -z "${DOCKER_HOST:-}" ] && [ ! -e /var/run/docker.sock ] &&
  ! command -v dockerd >/dev/null && command -v apt-get >/dev/null; then
  sh scripts/engine.sh install &
  installing=$!
fi

# npm writes the hidden lockfile at the end of an installation, so its date is that of the last complete one.
installed=node_modules/.package-lock.json
if [ ! -x "$node" ] || [ ! -f "$installed" ] || [ -n "$(find package-lock.json -newer "$installed")" ]; then
  echo 'setup: installing packages (npm ci)' >&2
  # What was fetched before has the digest of the lockfile, or is fetched anew: the registry need not say that it is the same.
  npm ci --prefer-offline --no-fund --no-audit --loglevel=error >&2 || {
    wait
    exit 1
  }
  touch "$installed"
fi

if [ "${1:-}" = packages ]; then exit 0; fi
if [ -n "$installing" ]; then wait "$installing"; fi

# Some tests need programs of Debian; without one they are skipped, and say so.
debian() {
  echo "setup: installing $1 (apt-get install $2)" >&2
  log=$(mktemp)
  # shellcheck disable=SC2086
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $2; } >"$log" 2>&1 ||
    echo "setup: apt-get could not install $2: $(tail -n 2 "$log")" >&2
  rm -f "$log"
}
if [ "${1:-}" = programs ] && [ "$(id -u)" -eq 0 ] && grep -q '^ID=debian$' /etc/os-release 2>/dev/null; then
  # Ubuntu's package brings no browser of its own.
  if [ -z "${CORRAL_CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then
    debian 'a browser for the tests of the page' 'chromium fonts-dejavu-core'
  fi
  command -v shellcheck >/dev/null || debian 'what reads the shell scripts' shellcheck
  command -v bwrap >/dev/null || debian 'what makes cells without an Engine' 'bubblewrap busybox-static'
  # Tests of fleets in PostgreSQL start a server of their own. Debian's own server is not started.
  if ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
    settings=/etc/postgresql-common/createcluster.conf own=
    mkdir -p "${settings%/*}"
    [ -e "$settings" ] || { own=yes && echo 'create_main_cluster = false' >"$settings"; }
    debian 'a database for the tests of fleets' postgresql
    # A server that is installed later makes its own cluster, as usual.
    [ -z "$own" ] || rm -f "$settings"
  fi
fi
# The Engine starts while the program is built. The types of what is tested are checked beside the tests.
sh scripts/engine.sh "$node" &
starting=$!
"$node" scripts/build.ts ${1:+--unchecked}
wait "$starting"
if [ "${1:-}" = programs ]; then exit 0; fi
"$node" scripts/images.ts
