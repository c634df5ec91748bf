import { GATE_PATH } from "../plan.ts";

/** Where a serving cell takes an item's input and leaves what its command printed. Files of Corral's own making. */
export const ITEM_IO_PATH = "/.corral/io";

/**
 * What a serving cell's first process does: for each line `run ID` of its input it runs the worker's command once, and
 * then scrubs: it ends every other process at once, empties everything that can be written in memory, looks whether
 * anything is left, and only then answers `ended ID CODE KILLED`. `KILLED` counts the kernel's kills for memory so far.
 *
 * It has the worker's own rights, for nobody in a cell can become somebody else. What keeps it out of the worker's reach:
 * it is process 1, which no signal from inside its namespace ends; its binary can be executed and not read, so that the
 * kernel lets nobody trace it or open its descriptors; and the worker inherits none of them. So an item can forge neither
 * its own exit status nor an end, nor can it write into what another leaves (design fact 6).
 *
 * A cell that is not clean afterwards says so and ends: `dirty ID CODE WHAT`.
 */
const SERVE_SCRIPT = `
umask 022
gate=$0
oom_kills() {
  killed=0
  for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
    [ -r "$file" ] || continue
    while read -r name value; do [ "$name" = oom_kill ] && killed=$value; done < "$file"
  done
}
scrub() {
  dirty=
  kill -KILL -1 2> /dev/null
  tries=0
  while set -- /proc/[0-9]*; [ $# -gt 1 ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 500 ]; then dirty=processes; return; fi
    # Zombies become this process's children, and are taken with any child that is waited for.
    : & wait $! 2> /dev/null
    kill -KILL -1 2> /dev/null
  done
  for dir in /tmp /dev/shm; do
    set -- "$dir"/* "$dir"/.[!.]* "$dir"/..?*
    for left; do
      if [ -e "$left" ] || [ -L "$left" ]; then
        "$gate" rm -rf -- "$dir"/* "$dir"/.[!.]* "$dir"/..?*
        break
      fi
    done
    set -- "$dir"/* "$dir"/.[!.]* "$dir"/..?*
    for left; do
      if [ -e "$left" ] || [ -L "$left" ]; then dirty=files; fi
    done
  done
  set -- /dev/mqueue/* /dev/mqueue/.[!.]*
  for left; do
    if [ -e "$left" ]; then dirty=queues; fi
  done
  for kind in shm msg sem; do
    if [ -r "/proc/sysvipc/$kind" ]; then
      { read -r _; read -r _ && dirty=ipc; } < "/proc/sysvipc/$kind"
    fi
  done
}
command=$(
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && echo "$1" ;;
*) set -f; IFS=:; for dir in $PATH; do [ -f "$dir/$1" ] && [ -x "$dir/$1" ] && echo "$dir/$1" && break; done ;;
esac
)
[ -n "$command" ] || exit 127
shift
set -- "$command" "$@"
while IFS=' ' read -r word id; do
  [ "$word" = run ] || exit 1
  ( CORRAL_RUN=$id; export CORRAL_RUN; unset PWD OLDPWD SHLVL; exec "$@" < ${ITEM_IO_PATH}/in > ${ITEM_IO_PATH}/out 2> ${ITEM_IO_PATH}/err ) 2> /dev/null &
  wait $!
  code=$?
  scrub
  if [ -n "$dirty" ]; then echo "dirty $id $code $dirty"; exit 1; fi
  oom_kills
  echo "ended $id $code $killed"
done
`;

/** The command of a serving cell. It is looked up by hand, as at the gate: this shell would prefer its own applets. */
export function serveCommand(command: readonly string[]): string[] {
  return [GATE_PATH, "sh", "-c", SERVE_SCRIPT, GATE_PATH, ...command];
}
