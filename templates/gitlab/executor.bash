#!/bin/bash
# A custom executor of GitLab Runner: each job has a session of Corral, without a network. docs/ci.md shows config.toml.
# $1: config, prepare, run or cleanup; for run, $2 is a script of the runner, and $3 the name of its stage.
# CORRAL_PROJECT: a folder with corral.yaml, whose workers are what `image:` of a job may name; `job`, if it names none.
set -euo pipefail

build_failure=${BUILD_FAILURE_EXIT_CODE:-1}
system_failure=${SYSTEM_FAILURE_EXIT_CODE:-2}

fail() {
  echo "corral: $2" >&2
  exit "$1"
}

id=${CUSTOM_ENV_CI_JOB_ID:-}
[[ $id =~ ^[0-9]{1,19}$ ]] || fail "$system_failure" "CUSTOM_ENV_CI_JOB_ID is not the number of a job"
session=gitlab-$id

in_session() {
  corral session exec "$session" -- "$@"
}

# The runner's own script for this stage would clone in the container. Here git reads objects on the host, and no work tree is made.
sources() {
  local objects
  objects=$(mktemp -d) || exit "$system_failure"
  # shellcheck disable=SC2064
  trap "rm -rf -- '$objects'" EXIT
  [[ ${CUSTOM_ENV_CI_COMMIT_SHA:-} =~ ^[0-9a-f]{40,64}$ ]] || fail "$system_failure" "CUSTOM_ENV_CI_COMMIT_SHA is not a commit"
  # No filter driver of this machine counts for a stranger's attributes. The address has a token, so it is no argument.
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_ATTR_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=${CUSTOM_ENV_CI_REPOSITORY_URL:-}
  git init --quiet --bare --template= "$objects" || exit "$system_failure"
  git -C "$objects" fetch --quiet --depth=1 --no-tags --no-recurse-submodules origin "$CUSTOM_ENV_CI_COMMIT_SHA" || exit "$system_failure"
  git -C "$objects" archive --format=tar "$CUSTOM_ENV_CI_COMMIT_SHA" | corral session put "$session" - /work/tree.tar || exit "$system_failure"
  # shellcheck disable=SC2016
  in_session sh -euc 'mkdir -p "$1"; tar -xf /work/tree.tar -C "$1"; rm /work/tree.tar' sources "$CUSTOM_ENV_CI_PROJECT_DIR"
}

run() {
  local script=$1 stage=$2 status=0
  case $stage in
    get_sources)
      [[ ${CUSTOM_ENV_GIT_STRATEGY:-} == none ]] && return
      sources || status=$?
      ;;
    restore_cache | archive_cache*)
      echo "corral: no cache is kept: a job of a branch would write it"
      return
      ;;
    download_artifacts | upload_artifacts*)
      fail "$build_failure" "this executor passes no artifacts on; jobs of \`corral ci run\` have them"
      ;;
    *)
      corral session put "$session" "$script" /work/script.sh || exit "$system_failure"
      in_session bash /work/script.sh || status=$?
      ;;
  esac
  # 125: an error of the Engine, which says nothing about the job.
  [[ $status != 125 ]] || exit "$system_failure"
  [[ $status != 0 ]] || return 0
  [[ -z ${BUILD_EXIT_CODE_FILE:-} ]] || echo "$status" > "$BUILD_EXIT_CODE_FILE"
  exit "$build_failure"
}

case ${1:-} in
  config)
    printf '{"builds_dir": "/work/builds", "cache_dir": "/work/cache", "driver": {"name": "Corral", "version": "%s"}}\n' "$(corral --version)"
    ;;
  prepare)
    worker=${CUSTOM_ENV_CI_JOB_IMAGE:-job}
    [[ $worker =~ ^[a-z][a-z0-9-]{0,60}$ ]] || fail "$build_failure" "image: must name a worker of the runner's project"
    corral session start "$worker" --project "${CORRAL_PROJECT:?names the project of the workers}" --name "$session" --end-after 24h || exit "$system_failure"
    ;;
  run) run "$2" "$3" ;;
  cleanup) corral session stop "$session" ;;
  *) fail "$system_failure" "the first argument is config, prepare, run or cleanup" ;;
esac
