# Unpacks the branch and its packages into memory and runs its tests. The command is the base's; what it starts is the branch's.
# Arguments are node's, such as --test-shard=1/2.
mkdir /tmp/branch /tmp/npm
cd /tmp/branch || exit
# Only the worker `try` sees /code.
if [ -d /code ]; then cp -R /code/. .; else tar -xf /attachments/tree.tar; fi
archive=$(sha256sum package-lock.json | cut -c1-64).tar
[ -e "/cache/$archive" ] && packages=/cache || packages=/packages
tar -xf "$packages/$archive" -C /tmp/npm
# npm compares each package with its digest in the lock file again. Install scripts run here, without network.
# A lock file without addresses is found in the cache by the registry that it was filled from.
registry=$(cat /tmp/npm/registry 2>/dev/null || npm config get registry)
npm ci --offline --no-fund --no-audit --cache /tmp/npm --registry "$registry" --replace-registry-host=always
exec node --disable-warning=MaxListenersExceededWarning --test --experimental-test-coverage "$@" \
  --test-reporter=spec --test-reporter-destination=stdout \
  --test-reporter=junit --test-reporter-destination=/reports/junit.xml \
  --test-reporter=/scripts/coverage.mjs --test-reporter-destination=/reports/coverage.json
