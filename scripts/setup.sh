#!/bin/sh
# Makes a fresh clone on a fresh machine ready to run: packages, an Engine, the compiled program, the images.
# Says nothing where there is nothing to do. POSIX sh, because at first there may be no Node to speak of.
set -eu
cd "$(dirname "$0")/.."
node=node_modules/.bin/node

# npm writes the hidden lockfile at the end of an installation, so it tells when the last one ended well.
installed=node_modules/.package-lock.json
if [ ! -x "$node" ] || [ ! -f "$installed" ] || [ -n "$(find package-lock.json -newer "$installed")" ]; then
  echo 'setup: installing packages (npm ci)' >&2
  npm ci --no-fund --no-audit --loglevel=error >&2
  touch "$installed"
fi

sh scripts/engine.sh "$node"
"$node" scripts/build.ts
"$node" scripts/images.ts
