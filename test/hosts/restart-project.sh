#!/bin/sh
# restart-project.sh begin|end DIR DRIVER: what is tried of a machine that is restarted under Corral.
# `begin` makes a project in DIR, and starts a run and a fleet of it, whose cells DRIVER makes. It returns when some items have ended, while others and
# the run go on. `end`, after the restart, goes on with the fleet, and fails if an item has not one result and one effect, or something is left.
set -eu
mkdir -p "$2"
cd "$2"
export CORRAL_STATE_DIR="$2/state" CORRAL_DRIVER="$3"
items='01 02 03 04 05 06 07 08 09 10 11 12'

begin() {
  mkdir inbox text workers
  for item in $items; do echo "document $item" >"inbox/$item"; done
  chown 65532:65532 text
  cat >corral.yaml <<'YAML'
version: 1
policy: batch
sandbox:
  mode: direct
  zones:
    text: { path: ./text, mode: rw }
    inbox: { path: ./inbox, mode: ro }
YAML
  cat >workers/item.worker <<'YAML'
---
name: item
image: corral/base
command: [sh, -c, 'read -r x </attachments/in; sleep 3; echo "$x" >"$(echo /text/*)/out"; echo "did $x"']
sandbox: { zones: [{ name: text, mode: rw, approval: pre_approved, stage: true }] }
limits: { timeout: 20m }
---
YAML
  cat >workers/long.worker <<'YAML'
---
name: long
image: corral/base
command: [sh, -c, 'echo up; exec sleep 3000']
limits: { timeout: 1h }
---
YAML
  touch run.log fleet.jsonl
  # The project is older than the failure.
  sync
  patiently timeout 600 sh -c 'setsid corral run long >run.log 2>&1 </dev/null & until grep -q up run.log; do kill -0 $! || exit 1; sleep 0.5; done'
  setsid corral map item --over 'inbox/*' --attach '{path}=in' --key '{stem}' --allow-read '/text/{stem}' --allow-write '/text/{stem}' \
    --reuse fresh --concurrency 2 --no-cache --json >fleet.jsonl 2>fleet.log </dev/null &
  until [ "$(grep -c succeeded fleet.jsonl)" -ge 2 ]; do
    kill -0 $! || fail "$(cat fleet.log)"
    sleep 0.5
  done
}

end() {
  patiently corral ps >/dev/null
  corral fleet ls --json >fleets.json
  grep -q '"state":"done"' fleets.json && fail "the fleet had ended before the restart"
  corral fleet resume "$(sed 's/.*"id":"\([0-9a-f]*\)","spec".*/\1/' fleets.json)" >resumed.jsonl 2>resumed.log || fail "$(cat resumed.log)"
  corral fleet results latest --json >results.jsonl
  for item in $items; do
    of_item="\"key\":\"$item\",\"status\":\"succeeded\",.*\"output\":\"did document $item\\\\n\""
    [ "$(grep -c "$of_item" results.jsonl)" = 1 ] || fail "item $item: $(grep "\"key\":\"$item\"" results.jsonl)"
    [ "$(cat "text/$item/out")" = "document $item" ] || fail "item $item has not written what it should"
  done
  [ "$(wc -l <results.jsonl)" = 12 ] || fail "there are other results"
  corral runs ls --json | grep -q '"worker":"long".*"status":"interrupted"' || fail "the run is not told: $(corral runs ls)"
  [ "$(corral ps --json)" = "[]" ] || fail "cells are left: $(corral ps)"
  containers=$(docker ps --all --quiet --filter label=dev.corral.run)
  [ -z "$containers" ] || fail "containers are left: $containers"
  [ -z "$(ls state/live)" ] || fail "processes are left: $(ls state/live)"
  grep "$PWD/state" /proc/self/mountinfo && fail "mounts are left"
  find /sys/fs/cgroup -path '*/corral/*' -type d | grep . && fail "control groups are left"
  return 0
}

# An emulated machine beside other work may answer late.
patiently() {
  for _ in 1 2 3 4; do
    "$@" && return
    sleep 20
  done
  fail "$(cat run.log)"
}

fail() {
  echo "$1"
  exit 1
}

"$1"
