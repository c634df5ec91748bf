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
  mkdir -p "/work/fetched/$tool"
  tar -xf "${one#*:}/packages.tar" -C "/work/fetched/$tool"
  case $tool in
    npm)
      # npm compares each package with its digest in the lock file again, and runs install scripts here, without a network.
      npm ci --offline --no-fund --no-audit --cache /work/fetched/npm/npm \
        --registry "$(cat /work/fetched/npm/registry)" --replace-registry-host=always
      ;;
    pip)
      python3 -m venv /work/venv
      export VIRTUAL_ENV=/work/venv PATH="/work/venv/bin:$PATH"
      pip install --no-index --no-deps --require-hashes --disable-pip-version-check --quiet \
        --find-links /work/fetched/pip/wheels --requirement requirements.txt
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
