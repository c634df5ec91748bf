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
  npm ci --no-fund --no-audit --loglevel=error >&2 || {
    wait
    exit 1
  }
  touch "$installed"
fi

if [ "${1:-}" = packages ]; then exit 0; fi
if [ -n "$installing" ]; then wait "$installing"; fi
sh scripts/engine.sh "$node"

# Only the tests of the page use a browser; without one they are skipped, and say so. Ubuntu's package brings no browser of its own.
if [ "${1:-}" = programs ] && [ "$(id -u)" -eq 0 ] && [ -z "${CORRAL_CHROMIUM:-}" ] && ! command -v chromium >/dev/null &&
  grep -q '^ID=debian$' /etc/os-release 2>/dev/null; then
  echo 'setup: installing a browser for the tests of the page (apt-get install chromium)' >&2
  log=$(mktemp)
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >"$log" 2>&1 ||
    echo "setup: apt-get could not install chromium: $(tail -n 2 "$log")" >&2
  rm -f "$log"
fi
# Tests of fleets in PostgreSQL start a server of their own; without its programs they are skipped, and say so. Debian's own server is not started.
if [ "${1:-}" = programs ] && [ "$(id -u)" -eq 0 ] && ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 &&
  grep -q '^ID=debian$' /etc/os-release 2>/dev/null; then
  echo 'setup: installing a database for the tests of fleets (apt-get install postgresql)' >&2
  log=$(mktemp)
  settings=/etc/postgresql-common/createcluster.conf own=
  mkdir -p "${settings%/*}"
  [ -e "$settings" ] || { own=yes && echo 'create_main_cluster = false' >"$settings"; }
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql; } >"$log" 2>&1 ||
    echo "setup: apt-get could not install postgresql: $(tail -n 2 "$log")" >&2
  # A server that is installed later makes its own cluster, as usual.
  [ -z "$own" ] || rm -f "$settings"
  rm -f "$log"
fi
"$node" scripts/build.ts
if [ "${1:-}" = programs ]; then exit 0; fi
"$node" scripts/images.ts
