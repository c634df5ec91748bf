#!/bin/sh
# Installs and builds what is missing: packages, an Engine, the compiled program, the images. `setup.sh packages` installs
# the packages only; `setup.sh programs` does all but the images. Prints nothing if nothing is missing. POSIX sh, because
# the machine may have no suitable Node yet.
set -eu
cd "$(dirname "$0")/.."
node=node_modules/.bin/node

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
"$node" scripts/build.ts
if [ "${1:-}" = programs ]; then exit 0; fi
"$node" scripts/images.ts
