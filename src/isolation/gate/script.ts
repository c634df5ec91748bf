import { GATE_PATH, type Plan } from "../plan/plan.ts";

/** What opens the gate. Anything else, or the end of its input, ends the cell without running the worker. */
export const GO = "go\n";
/** Exit codes of a gate that did not run the worker's command. */
export const GATE_SHUT = 125;

/**
 * What stands between the start of a cell and the worker's first instruction. Run by Corral's own static busybox, so
 * that an image needs no shell and has no say: it reports what the cell is, waits for one line, and becomes the
 * command. `read` takes no byte beyond that line; what follows on stdin is the worker's input (docs/architecture.md,
 * fact: gate-reads-one-line).
 *
 * The directory that the worker begins in is entered here, with the worker's own rights: the Engine would make a missing one,
 * as root, in what was granted.
 *
 * The command is looked up here by hand, because this shell would prefer its own applets to the image's programs.
 *
 * What the kernel says is printed by one program: this shell would read it byte by byte, each a system call. It is started
 * as the worker will be, so what it is and may is what the worker will be and may.
 *
 * Everything happens in subshells, and but one variable outside of them: a variable of the worker's environment that
 * has a name of this script's would otherwise be gone when the worker begins. What this shell adds of its own goes.
 */
const SCRIPT = `
(
gate=$0
"$gate" head -v -n 100000 /proc/self/mountinfo /proc/self/status /proc/self/limits /proc/net/dev /proc/meminfo
echo '== cgroup'
for file in memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory.max memory.swap.max pids.max cpu.max; do
  [ -r "/sys/fs/cgroup/$file" ] && read -r value < "/sys/fs/cgroup/$file" && echo "$file $value"
done
echo '== identities'; set -f; IFS='
'; "$gate" stat -c '%d:%i %n' $1
)
echo '== directory'
cd "$2" 2> /dev/null && echo entered
shift 2
corral_gate_command=$(
case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && echo "$1" ;;
*) set -f; IFS=:; for dir in $PATH; do [ -f "$dir/$1" ] && [ -x "$dir/$1" ] && echo "$dir/$1" && break; done ;;
esac
)
echo '== command'
echo "$corral_gate_command"
echo '== end'
( IFS= read -r go && [ "$go" = go ] ) || exit ${GATE_SHUT}
[ -n "$corral_gate_command" ] || exit 127
shift
set -- "$corral_gate_command" "$@"
unset corral_gate_command PWD OLDPWD SHLVL
exec "$@"
`;

/** The container's whole argument list: the gate, the mount points to identify, where to begin, and the worker's command. */
export function gateCommand(plan: Plan): string[] {
  const paths = plan.mounts.map((mount) => mount.path).join("\n");
  // Who holds a session's cell may enter less than its commands, each of which enters its own directory.
  const directory = plan.keeper === undefined ? plan.workingDir : "/";
  return [GATE_PATH, "sh", "-c", SCRIPT, GATE_PATH, paths, directory, ...plan.command];
}
