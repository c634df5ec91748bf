# Fetches what a lock file names, in a cell that reaches nothing else and has no other file of the head.
# $1: the tool; $2: the folder of the files that it reads; $3: the folder of the packages.
mkdir -p /work/fetched
cd /work || exit
case $1 in
  npm)
    cp "$2/package.json" "$2/package-lock.json" .
    npm ci --ignore-scripts --no-fund --no-audit --cache /work/fetched/npm
    # What a lock file without addresses names is found in the cache by the registry that it came from.
    npm config get registry > fetched/registry
    ;;
  pip)
    # Building a source would run what the head chose, beside a network.
    python3 -m pip download --no-deps --require-hashes --only-binary :all: --no-cache-dir \
      --disable-pip-version-check --dest fetched/wheels --requirement "$2/requirements.txt"
    ;;
esac
tar -cf "$3/packages.tar" -C fetched .
