# A job of `corral ci` in its cell. The command is the base's; what it starts is the head's.
# $1: fetched packages, each as TOOL:FOLDER; $2: the folder of the job in the repository; $3: its command;
# $4, $5: patterns of reports, and where they go; $6, $7: the same of artifacts; $8: caches, each as FOLDER:PATH.
set -f
mkdir -p /work/head
cd /work/head || exit
tar -xf /attachments/tree.tar
cd "./$2" || exit

for one in $1; do
  tool=${one%%:*}
  tool=${tool#worker.}
  mkdir -p "/work/fetched/$tool"
  tar -xf "${one#*:}/packages.tar" -C "/work/fetched/$tool"
  case ${one%%:*} in
    npm)
      # npm compares each package with its digest in the lock file again, and runs install scripts here, without a network.
      npm ci --offline --no-fund --no-audit --cache /work/fetched/npm/npm \
        --registry "$(cat /work/fetched/npm/registry)" --replace-registry-host=always
      ;;
    pip)
      # A venv in which pip installs itself takes longer than most tests. Debian has it as wheels, which are only unpacked.
      wheels=$(find /usr/share/python-wheels -name '*.whl' 2> /dev/null || true)
      python3 -m venv ${wheels:+--without-pip} /work/venv
      export VIRTUAL_ENV=/work/venv PATH="/work/venv/bin:$PATH"
      [ -z "$wheels" ] || python3 - << 'END'
import glob, os, sys, sysconfig, zipfile
for wheel in glob.glob("/usr/share/python-wheels/*.whl"):
    zipfile.ZipFile(wheel).extractall(sysconfig.get_path("purelib"))
for name in ("pip", "pip3", "pip3.%d" % sys.version_info[1]):
    path = os.path.join(sysconfig.get_path("scripts"), name)
    with open(path, "w") as script:
        script.write("#!%s\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n" % sys.executable)
    os.chmod(path, 0o755)
END
      pip install --no-index --no-deps --require-hashes --disable-pip-version-check --quiet \
        --find-links /work/fetched/pip/wheels --requirement requirements.txt
      ;;
    uv)
      # `uv run` uses what is installed here. uv compares each wheel with its hash in the lock file again.
      export UV_OFFLINE=1 UV_FROZEN=1 UV_NO_SYNC=1 UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/work/uv-cache
      export UV_PROJECT_ENVIRONMENT=/work/venv VIRTUAL_ENV=/work/venv PATH="/work/venv/bin:$PATH"
      uv venv --quiet /work/venv
      uv export --quiet --all-packages --all-extras --all-groups > /work/all.txt || uv export --quiet --all-packages > /work/all.txt
      awk '/^[^ #]/ { named = /^[a-z0-9][^ ]*==/ } named' /work/all.txt > /work/requirements.txt
      uv pip install --quiet --no-index --no-deps --require-hashes --find-links /work/fetched/uv/wheels --requirement /work/requirements.txt
      # Most often uv.lock does not name what folders of the repository are built with: then Python finds their files where they are.
      sed -n 's/^-e \([^ ]*\).*/\1/p; s/^\(\.[^ ]*\).*/\1/p' /work/all.txt | while read -r folder; do
        uv pip install --quiet --no-index --no-deps --no-build-isolation --editable "$folder" 2> /dev/null || {
          echo "corral: $folder cannot be built by what uv.lock names; its files are imported from where they are" >&2
          [ ! -d "$folder/src" ] || folder=$folder/src
          (cd "$folder" && pwd) >> "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/head.pth"
        }
      done
      ;;
    cargo)
      mkdir -p /work/cargo /work/crates
      export CARGO_HOME=/work/cargo CARGO_NET_OFFLINE=true
      printf '[source.crates-io]\nreplace-with = "fetched"\n[source.fetched]\ndirectory = "/work/crates"\n' > /work/cargo/config.toml
      # cargo compares each digest with Cargo.lock again.
      find /work/fetched/cargo/crates -name '*.crate' | while read -r crate; do
        tar -xzf "$crate" -C /work/crates
        read -r digest _ << END
$(sha256sum "$crate")
END
        printf '{"files":{},"package":"%s"}' "$digest" > "/work/crates/$(basename "$crate" .crate)/.cargo-checksum.json"
      done
      ;;
    go)
      # go compares each module with go.sum, which its own cache cannot replace.
      export GOPATH=/work/go GOCACHE=/work/go-build GOPROXY=file:///work/fetched/go/proxy GOSUMDB=off GOTOOLCHAIN=local GOVCS='*:off'
      ;;
  esac
done

for one in $8; do
  if [ -f "${one%%:*}/data.tar" ]; then
    mkdir -p "${one#*:}"
    tar -xf "${one%%:*}/data.tar" -C "${one#*:}"
  fi
done

# A `*` of a pattern stands for a slash too. Links are left out.
collect() {
  for pattern in $1; do
    find . -type f -path "./$pattern" -print0 | tar --null --files-from=- -cf - | tar -xf - -C "$2"
  done
}

status=0
sh -eu -c "$3" || status=$?
collect "$4" "$5"
collect "$6" "$7"

# Only a run of the base may write there.
for one in $8; do
  if [ "$status" = 0 ] && [ -w "${one%%:*}" ] && [ ! -e "${one%%:*}/data.tar" ] && [ -d "${one#*:}" ]; then
    tar -cf "${one%%:*}/data.tar" -C "${one#*:}" .
  fi
done
exit "$status"
