import { GATE_PATH, type Plan } from "../plan/plan.ts";

/** The line that opens the gate. Any other line, or the end of its input, ends the cell without running the worker. */
export const GO = "go\n";
/** What the gate prints when it was opened. Whatever is printed after it is the worker's. */
export const BEGUN = "== begun\n";
/** Exit codes of a gate that did not run the worker's command. */
export const GATE_SHUT = 125;

/**
 * Runs between the start of a cell and the worker's first instruction, in Corral's own static busybox, so
 * that an image needs no shell and has no say: it reports what the cell is, waits for one line, and becomes the
 * command. `read` takes no byte beyond that line; what follows on stdin is the worker's input (docs/architecture.md,
 * fact: gate-reads-one-line).
 *
 * The worker's starting directory is entered here, with the worker's own rights: the Engine would create a missing one,
 * as root, in a granted directory.
 *
 * The command is looked up by the script, because this shell would prefer its own applets to the image's programs.
 *
 * One program prints what the kernel reports: this shell would need a system call for each byte. It is started as the
 * worker will be, so its identity and rights are those of the worker.
 *
 * Everything runs in subshells, with one variable outside of them: otherwise the script would overwrite variables of the
 * worker's environment that have the same name. Variables that this shell adds are unset.
 */
const SCRIPT = `
(
gate=$0
"$gate" head -v -n 100000 /proc/self/mountinfo /proc/self/status /proc/self/limits /proc/net/dev /proc/meminfo
echo '== cgroup'
for file in memory/memory.limit_in_bytes memory/memory.memsw.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us memory.max memory.swap.max pids.max cpu.max; do
  [ -r "/sys/fs/cgroup/$file" ] && read -r value < "/sys/fs/cgroup/$file" && echo "$file $value"
done
echo '== namespaces'
"$gate" stat -L -c '%i %n' /proc/self/ns/pid /proc/self/ns/ipc /proc/self/ns/uts /proc/self/ns/net
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
echo '${BEGUN.trim()}'
[ -n "$corral_gate_command" ] || exit 127
shift
set -- "$corral_gate_command" "$@"
unset corral_gate_command PWD OLDPWD SHLVL
exec "$@"
`;

/** The container's whole argument list: the gate, the mount points to identify, where to begin, and the worker's command. */
export function gateCommand(plan: Plan): string[] {
  const paths = plan.mounts.map((mount) => mount.path).join("\n");
  // A session's keeper may have fewer rights than its commands, each of which enters its own directory.
  const directory = plan.keeper === undefined ? plan.workingDir : "/";
  return [GATE_PATH, "sh", "-c", SCRIPT, GATE_PATH, paths, directory, ...plan.command];
}
