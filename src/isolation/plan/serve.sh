umask 022
trap '' INT
corral_gate=$0
corral_places=$1
corral_memory=$2
shift 2
corral_line='
'
corral_oom_kills() {
  corral_killed=0
  for corral_file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$corral_file" ] || continue
    while read -r corral_name corral_value; do [ "$corral_name" = oom_kill ] && corral_killed=$corral_value; done < "$corral_file"
  done
}
corral_holds() {
  set -- "$1"/* "$1"/.[!.]* "$1"/..?*
  for corral_left; do
    if [ -e "$corral_left" ] || [ -L "$corral_left" ]; then return 0; fi
  done
  return 1
}
corral_remove() {
  command eval '"$corral_gate" find "$1" -mindepth 1 -maxdepth 1 -exec "$corral_gate" rm -rf -- {} +'
}
corral_empty() {
  corral_holds "$1" || return 0
  corral_remove "$1"
  corral_holds "$1" || return 0
  # What is left may be folders that their owner has closed.
  command eval '"$corral_gate" find "$1" -mindepth 1 -maxdepth 1 ! -type l -exec "$corral_gate" chmod -R u+rwx -- {} +'
  corral_remove "$1"
  ! corral_holds "$1"
}
corral_count_sockets() {
  corral_sockets=unknown
  {
    read -r corral_name corral_word corral_value
    IFS=' ' read -r corral_name corral_word corral_word corral_word corral_word corral_word corral_waiting corral_word
  } < /proc/net/sockstat || return 0
  # Connections that have ended still hold their port for a minute.
  case $corral_value,$corral_waiting in ,* | *, | *[!0-9,]*) ;; *) corral_sockets=$((corral_value + corral_waiting)) ;; esac
}
corral_await_sockets() {
  corral_tries=0
  while corral_count_sockets; [ "$corral_sockets" != "$1" ] || [ "$corral_sockets" = unknown ]; do
    corral_tries=$((corral_tries + 1))
    if [ "$corral_tries" -gt 40 ]; then return 1; fi
    command eval '"$corral_gate" logger "" > /dev/null; "$corral_gate" usleep 5000'
  done
}
# Memory of files without a name, and of everything that is not the content of a file, in KiB.
corral_measure_memory() {
  corral_shared=unknown
  corral_other=unknown
  for corral_file in /sys/fs/cgroup/memory/memory.usage_in_bytes /sys/fs/cgroup/memory.current; do
    [ -r "$corral_file" ] || continue
    read -r corral_used < "$corral_file"
    corral_stat=/sys/fs/cgroup/memory/memory.stat
    [ -r "$corral_stat" ] || corral_stat=/sys/fs/cgroup/memory.stat
    corral_cached=0
    while read -r corral_name corral_value; do
      case $corral_name in cache | file) corral_cached=$corral_value ;; shmem) corral_shared=$((corral_value / 1024)); break ;; esac
    done < "$corral_stat"
    corral_other=$(((corral_used - corral_cached) / 1024))
    return
  done
}
corral_holds_memory() {
  corral_tries=0
  while corral_measure_memory; ! { [ "$corral_shared" -le @MAX_SHARED_KIB@ ] && [ "$corral_other" -le "$corral_most" ]; }; do
    corral_tries=$((corral_tries + 1))
    if [ "$corral_tries" -gt 20 ]; then return 0; fi
    command eval '"$corral_gate" usleep 10000'
  done
  return 1
}
corral_open_ipc() {
  corral_held=
  IFS=.- read -r corral_word corral_value corral_name < /proc/sys/kernel/osrelease || return 0
  case $corral_word,$corral_value in *[!0-9,]* | , | ,* | *,) return 0 ;; esac
  if [ "$corral_word" -lt 5 ] || { [ "$corral_word" = 5 ] && [ "$corral_value" -lt 8 ]; }; then return 0; fi
  for corral_kind in shm msg sem; do [ -r "/proc/sysvipc/$corral_kind" ] || return 0; done
  exec 6< /proc/sysvipc/shm 7< /proc/sysvipc/msg 8< /proc/sysvipc/sem
  read -r corral_left <&6 && read -r corral_left <&7 && read -r corral_left <&8 && corral_held=yes
}
corral_holds_ipc() {
  if [ -n "$corral_held" ]; then
    read -r corral_left <&6 || read -r corral_left <&7 || read -r corral_left <&8
    return
  fi
  for corral_kind in shm msg sem; do
    if [ -r "/proc/sysvipc/$corral_kind" ]; then
      { read -r corral_left; read -r corral_left && return 0; } < "/proc/sysvipc/$corral_kind"
    fi
  done
  return 1
}
corral_scrub() {
  corral_dirty=
  kill -KILL -1
  corral_tries=0
  while set -- /proc/[0-9]*; [ $# -gt 1 ]; do
    corral_tries=$((corral_tries + 1))
    if [ "$corral_tries" -gt 320 ]; then corral_dirty=processes; return; fi
    # Zombies have become this process's children: this takes those that are there, and needs no process for it.
    jobs > /dev/null
    # The others are on their way out, and need the processor for it.
    if [ "$corral_tries" -gt 20 ]; then command eval '"$corral_gate" usleep 10000'; fi
    kill -KILL -1
  done
  corral_await_sockets "$corral_own_sockets" || corral_dirty=sockets
  corral_rest=$corral_places
  while [ -n "$corral_rest" ]; do
    corral_empty "${corral_rest%%"$corral_line"*}" || corral_dirty=files
    corral_rest=${corral_rest#*"$corral_line"}
  done
  corral_holds_memory && corral_dirty=memory
  corral_holds /dev/mqueue && corral_dirty=queues
  corral_holds_ipc && corral_dirty=ipc
}
corral_command=$(
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && echo "$1" ;;
*) set -f; IFS=:; for dir in $PATH; do [ -f "$dir/$1" ] && [ -x "$dir/$1" ] && echo "$dir/$1" && break; done ;;
esac
)
[ -n "$corral_command" ] || exit 127
shift
set -- "$corral_command" "$@"
# An engine may keep a socket of its own here.
corral_await_sockets 0
corral_own_sockets=$corral_sockets
corral_open_ipc
corral_measure_memory
corral_most=$((corral_other + corral_memory / 4096))
while IFS=' ' read -r corral_word corral_id; do
  [ "$corral_word" = run ] || exit 1
  # In the foreground, for what is begun in the background begins with SIGINT and SIGQUIT ignored.
  ( trap - INT; CORRAL_RUN=$corral_id; export CORRAL_RUN; . @ITEM_IO_PATH@/env; unset PWD OLDPWD SHLVL; exec "$corral_gate" setsid "$@" < @ITEM_IO_PATH@/in > @ITEM_IO_PATH@/out 2> @ITEM_IO_PATH@/err 6<&- 7<&- 8<&- )
  corral_code=$?
  corral_scrub
  corral_oom_kills
  if [ -n "$corral_dirty" ]; then echo "dirty $corral_id $corral_code $corral_killed $corral_dirty"; exit 1; fi
  echo "ended $corral_id $corral_code $corral_killed"
done 2> /dev/null
