import type Docker from "dockerode";
import type { Cell } from "../cell.ts";
import type { Exec, ExecRequest, SessionCell } from "../exec.ts";
import { GATE_PATH, type Plan, type PlannedUser } from "../plan.ts";
import type { Attachment } from "./attachment.ts";
import { execIn } from "./exec.ts";

/**
 * Signals every process of its own user but itself, at once, as the kernel does for `-1`: no fork can outrun it. The
 * holder and the init belong to another user and stay. After a KILL it counts what is left: process directories that
 * are its own user's, but for its own. `kill` is the shell's own: a program would end the shell that waits for it. `$0` is the gate's binary.
 */
const SIGNAL_ALL_SCRIPT = `
kill -"$1" -1
[ "$1" = KILL ] || exit 0
for attempt in 1 2 3 4 5 6 7 8 9 10; do
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

/** Counts the processes that the kernel killed for memory, in either version of control groups. */
const OOM_KILLS_SCRIPT = `
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
  [ -r "$file" ] || continue
  while read -r name value; do [ "$name" = oom_kill ] && echo "$value"; done < "$file"
done
exit 0
`;

interface SessionParts {
  readonly container: Docker.Container;
  readonly attachment: Attachment;
  readonly plan: Plan;
}

/** A container whose first process only waits, and in which commands run one after another as the worker's user. */
export function dockerSession(cell: Cell, { container, attachment, plan }: SessionParts): SessionCell {
  const { user } = plan;
  const script = (text: string, ...args: string[]) =>
    scripted(container, user, [GATE_PATH, "sh", "-c", text, GATE_PATH, ...args]);
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    release: (input) => attachment.release(plan.holder === undefined ? input : null),
    exec: (request: ExecRequest): Promise<Exec> => execIn(container, user, request),
    async signalAll(signal) {
      const { code } = await script(SIGNAL_ALL_SCRIPT, signal === "SIGTERM" ? "TERM" : "KILL");
      return code === 0;
    },
    async oomKills() {
      const { code, output } = await script(OOM_KILLS_SCRIPT);
      const count = Number.parseInt(output, 10);
      return code === 0 && Number.isSafeInteger(count) ? count : null;
    },
  };
}

/** Corral's own small questions to a cell. Null where the Engine or the cell could not even start them. */
async function scripted(
  container: Docker.Container,
  user: PlannedUser,
  argv: string[],
): Promise<{ code: number | null; output: string }> {
  let output = "";
  try {
    const stdin = Buffer.alloc(0);
    const onOutput = (_: string, chunk: Buffer): void => {
      output += chunk.toString("latin1");
    };
    const exec = await execIn(container, user, { argv, cwd: "/", env: {}, stdin, onOutput });
    const exit = await exec.exit;
    return { code: exit.kind === "exited" ? exit.code : null, output };
  } catch {
    return { code: null, output };
  }
}
