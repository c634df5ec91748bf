#!/bin/sh
# make.sh CHECKOUT NAME: what that version of Corral leaves on the disk, a project and its state directory, as NAME.tar.gz beside this script, for upgrade.test.ts.
# CHECKOUT is a copy of that version with its packages. The Engine has the image corral/base.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=/var/tmp/corral-upgraded
rm -rf "$place"
mkdir -m 0755 "$place"
mkdir -m 0700 "$place/state"
mkdir -p "$place/project/workers" "$place/project/scripts" "$place/project/out" "$place/project/in"
chown -R 65532:65532 "$place/project/out"
cd "$place/project"
cat > corral.yaml <<'Y'
version: 1
sandbox:
  mode: direct
  zones:
    in: { path: ./in, mode: ro }
    out: { path: ./out, mode: rw }
policy: untrusted
Y
cat > workers/hello.worker <<'Y'
---
command: [sh, -c, 'echo hello; echo problem >&2; echo kept > /out/kept.txt']
sandbox: { zones: [{ name: out, mode: rw }] }
---
Y
cat > workers/count.worker <<'Y'
---
command: [sh, -c, 'set -- /attachments/*; wc -c < "$1"; ! grep -q bad "$1"']
---
Y
cat > workers/clerk.worker <<'Y'
---
model: script/scripts/clerk.yaml
tools: [list_files]
sandbox: { zones: [{ name: in }] }
---
Look around.
Y
cat > scripts/clerk.yaml <<'Y'
- calls: [{ list_files: { path: /in } }]
- say: There are three files.
Y
for name in a b; do echo "$name" > "in/$name.txt"; done
echo bad > in/bad.txt
run() { CORRAL_STATE_DIR="$place/state" "$checkout/node_modules/.bin/node" "$checkout/src/cli/corral.ts" "$@" < /dev/null; }
checkout=$1
run run hello || [ $? = 126 ]
run run clerk
run map count --over 'in/*.txt' --attach '{path}' || [ $? = 1 ]
run explain hello > /dev/null
cd "$place"
tar --create --gzip --sort=name --numeric-owner --exclude=./state/live --exclude=./state/compiled --exclude='./state/gate' --exclude='./state/names' --exclude=./state/runc \
  --exclude=./state/containers --exclude='./state/images*' --exclude='./state/bootstrap*' --file "$here/$2.tar.gz" .
rm -rf "$place"
