# Fetches the packages of /lock/package-lock.json into an archive in the folder $1. npm compares each with its digest there.
archive=$(sha256sum /lock/package-lock.json | cut -c1-64).tar
if [ -e "/cache/$archive" ]; then
  echo "The cache has $archive."
  exit
fi
mkdir -p /tmp/project /tmp/npm/_cacache
cd /tmp/project || exit
cp /lock/package.json /lock/package-lock.json .
npm ci --ignore-scripts --no-fund --cache /tmp/npm
if [ "$1" = /cache ]; then rm -f /cache/*.tar; fi
# What a lock file without addresses names is found in the cache by the registry that it came from.
npm config get registry > /tmp/npm/registry
tar -cf "$1/$archive" -C /tmp/npm _cacache registry
