#!/bin/sh
# Installs and builds what is missing: packages, an Engine, the compiled program, the images. `setup.sh packages` installs
# the packages only. Prints nothing if nothing is missing. POSIX sh, because the machine may have no suitable Node yet.
set -eu
cd "$(dirname "$0")/.."
node=node_modules/.bin/node

# npm writes the hidden lockfile at the end of an installation, so its date is that of the last complete one.
installed=node_modules/.package-lock.json
if [ ! -x "$node" ] || [ ! -f "$installed" ] || [ -n "$(find package-lock.json -newer "$installed")" ]; then
  echo 'setup: installing packages (npm ci)' >&2
  npm ci --no-fund --no-audit --loglevel=error >&2
  touch "$installed"
fi

if [ "${1:-}" = packages ]; then exit 0; fi
sh scripts/engine.sh "$node"
"$node" scripts/build.ts
"$node" scripts/images.ts
