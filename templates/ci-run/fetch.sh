# Fetches what a lock file names, in a cell that reaches nothing else and has no other file of the head.
# $1: the tool, or `worker`; $2: the folder of the files that it reads; $3: the folder of the packages; then the command of a worker.
mkdir -p /work/fetched
cd /work || exit
case $1 in
  npm)
    cp "$2/package.json" "$2/package-lock.json" .
    npm ci --ignore-scripts --no-fund --no-audit --cache /work/fetched/npm
    # What a lock file without addresses names is found in the cache by the registry that it came from.
    npm config get registry > fetched/registry
    ;;
  pip | uv)
    cp "$2"/* .
    [ "$1" = pip ] || {
      # Groups may exclude each other; then it is what `uv sync` takes by itself. Folders of the repository are not fetched.
      export UV_FROZEN=1 UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/work/uv-cache
      uv export --quiet --all-packages --all-extras --all-groups > all.txt || uv export --quiet --all-packages > all.txt
      awk '/^[^ #]/ { named = /^[a-z0-9][^ ]*==/ } named' all.txt > requirements.txt
    }
    # Building a source would run what the head chose, beside a network. The Python of the image has pip, that of an environment none.
    /usr/bin/python3 -m pip download --no-deps --require-hashes --only-binary :all: --no-cache-dir \
      --disable-pip-version-check --dest fetched/wheels --requirement requirements.txt
    ;;
  cargo)
    # No cargo: crates are files whose digests the lock file has.
    index=$(sed -n 's/^registry = "sparse+\(.*\)"$/\1/p' /.cargo/config.toml)
    crates=$(curl --fail --silent --show-error "${index}config.json" | sed -n 's/.*"dl" *: *"\([^"{]*\)".*/\1/p')
    mkdir fetched/crates
    [ -n "$crates" ] || echo "the index of crates has no address of its files" >&2
    awk -f /dev/stdin "$2/Cargo.lock" << 'END' > crates.txt
/^\[\[package\]\]/ { name = version = "" }
/^(name|version|checksum) = "/ { split($0, part, "\""); if (/^n/) name = part[2]; else if (/^v/) version = part[2]; else print name, version }
END
    while read -r name version; do
      curl --fail --silent --show-error --location --output "fetched/crates/$name-$version.crate" "$crates/$name/$version/download"
    done < crates.txt
    ;;
  go)
    cp "$2"/go.* .
    GOPATH=/work/go GOTOOLCHAIN=local GOFLAGS=-mod=mod go mod download
    # What it fetched, in the form of a proxy. Without modules there is none.
    mkdir -p /work/go/pkg/mod/cache/download
    mv /work/go/pkg/mod/cache/download fetched/proxy
    ;;
  worker)
    cp -R "$2" lock
    packages=$3
    shift 3
    (cd lock && "$@")
    set -- worker lock "$packages"
    ;;
esac
tar -cf "$3/packages.tar" -C fetched .
