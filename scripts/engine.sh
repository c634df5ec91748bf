#!/bin/sh
# Makes sure that a container Engine answers: engine.sh NODE. If there is none at the default place, installs Debian's
# docker.io and starts dockerd, which needs root on Debian or Ubuntu. Anywhere else it reports what is missing.
# `engine.sh install` only installs, and needs no Node.
set -eu
cd "$(dirname "$0")/.."
node=$1
log=/var/log/corral-dockerd.log
# The Engine usually answers within 2 s; a slow disk may need longer.
wait_s=60

trouble='No container Engine is installed.'

main() {
  if [ "$node" = install ]; then
    install_engine
    return
  fi
  trouble=$("$node" scripts/engine-answers.ts 2>&1) && return
  status=$?
  [ "$status" -eq 3 ] || give_up "$trouble"
  [ "$(id -u)" -eq 0 ] || give_up "$trouble Corral can install and start it, but only as root."
  command -v dockerd >/dev/null || install_engine
  start_engine
}

install_engine() {
  command -v apt-get >/dev/null || give_up "$trouble Corral can install it on Debian and Ubuntu only; install it by hand."
  say 'installing the Engine (apt-get install docker.io)'
  export DEBIAN_FRONTEND=noninteractive
  {
    apt-get update && apt-get install -y --no-install-recommends docker.io iptables
  } >"$log" 2>&1 || give_up "apt-get could not install docker.io: $(tail -n 5 "$log")"
}

start_engine() {
  # Installing the package may have started it, and it may not answer yet.
  wait_for_running && return
  if [ -d /run/systemd/system ]; then
    say 'starting the Engine (systemctl start docker)'
    systemctl start docker || give_up 'systemctl could not start docker; see the log: journalctl -u docker'
    wait_for_engine '' || give_up 'docker was started and does not answer; see the log: journalctl -u docker'
    return
  fi
  say "starting the Engine (dockerd, log in $log)"
  start_dockerd && return
  wait_for_running && return
  if grep -Eqi 'iptables|bridge|nf_tables' "$log"; then
    say 'this machine does not allow a bridge network; starting the Engine without one'
    start_dockerd --iptables=false --ip6tables=false --bridge=none && return
  fi
  give_up "dockerd did not start; the end of $log: $(tail -n 5 "$log")"
}

wait_for_running() {
  running=$(cat /var/run/docker.pid 2>/dev/null) || return 1
  [ "$(cat "/proc/$running/comm" 2>/dev/null)" = dockerd ] || return 1
  wait_for_engine "$running"
}

# In a session of its own it outlives this script and the terminal. The pid file of an Engine that was killed is removed:
# if another process has that number now, dockerd would refuse to start.
start_dockerd() {
  running=$(cat /var/run/docker.pid 2>/dev/null) || running=none
  [ "$(cat "/proc/$running/comm" 2>/dev/null)" = dockerd ] || rm -f /var/run/docker.pid
  setsid dockerd "$@" </dev/null >"$log" 2>&1 &
  wait_for_engine "$!"
}

# Waits until the Engine answers, or until the process (if one is given) has ended.
wait_for_engine() {
  tries=$((wait_s * 2))
  while [ "$tries" -gt 0 ]; do
    if answers; then return 0; fi
    if [ -n "$1" ] && ! kill -0 "$1" 2>/dev/null; then return 1; fi
    sleep 0.5
    tries=$((tries - 1))
  done
  return 1
}

answers() {
  "$node" scripts/engine-answers.ts 2>/dev/null
}

say() {
  printf 'setup: %s\n' "$1" >&2
}

give_up() {
  say "$1"
  exit 1
}

main
