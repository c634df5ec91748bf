import { within } from "../../platform/within.ts";
import { FILL_SECRETS, secretLines } from "../gate/script.ts";
import { GATE_PATH, SECRETS_PATH } from "../plan/plan.ts";
import { EngineTrouble } from "../port/driver.ts";
import type { SessionCell } from "../port/exec.ts";

/** How long one of Corral's own scripts may take in a cell. */
export const SCRIPT_MS = 5000;

/**
 * Signals every process of its own user except itself, at once: for `-1` the kernel does so, and no fork can escape. The
 * keeper and the init belong to another user and stay. After a KILL it counts the other process directories of its user
 * that are left. `kill` is a builtin: a program would end the shell that waits for it. `$0` is the gate's binary.
 */
export const SIGNAL_ALL_SCRIPT = `
kill -"$1" -1
[ "$1" = KILL ] || exit 0
attempts=0
while [ "$attempts" -lt 60 ]; do
  attempts=$((attempts + 1))
  left=0
  for process in /proc/[0-9]*; do
    [ -O "$process" ] && [ "$process" != "/proc/$$" ] && left=1
  done
  [ "$left" = 0 ] && exit 0
  "$0" sleep 0.05
  kill -KILL -1
done
exit 1
`;

/** Rejects with `EngineTrouble` if they are not all there. */
export async function fillSecrets(
  cell: SessionCell,
  names: readonly string[],
  values: ReadonlyMap<string, string>,
): Promise<void> {
  const argv = [GATE_PATH, "sh", "-c", FILL_SECRETS, GATE_PATH, names.join(" ")];
  const exec = await cell.exec({ argv, cwd: "/", env: {}, stdin: secretLines(names, values), onOutput: () => {} });
  const exit = await within(exec.exit, SCRIPT_MS);
  if (exit?.kind !== "exited" || exit.code !== 0)
    throw new EngineTrouble(`the secrets could not be written: the image may have files at ${SECRETS_PATH}`);
}
