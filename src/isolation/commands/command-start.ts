import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { within } from "../../platform/within.ts";
import { FILL_SECRETS, secretLines } from "../gate/report.ts";
import { GATE_PATH, SECRETS_PATH } from "../plan/plan.ts";
import type { SessionCell } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";

/** How long one of Corral's own scripts may take in a cell. */
export const SCRIPT_MS = 5000;

/**
 * Signals every process of its own user except itself, at once: for `-1` the kernel does so, and no fork can escape. The
 * keeper and the init belong to another user and stay. After a KILL it counts the other process directories of its user
 * that are left. `kill` is a builtin: a program would end the shell that waits for it. `$0` is the gate's binary.
 */
export const SIGNAL_ALL_SCRIPT = textBeside(import.meta.url, "signal-all.sh");

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

/**
 * Prints how many processes of the cell the kernel has killed for memory so far, in either version of control groups;
 * nothing if the cell does not know.
 */
export const OOM_KILLS_SCRIPT = `
for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
  [ -r "$file" ] || continue
  while read -r name value; do [ "$name" = oom_kill ] && echo "$value"; done < "$file"
done
exit 0
`;

/** Null if the text is not a count. */
export function parseOomKills(text: string): number | null {
  const count = Number.parseInt(text, 10);
  return Number.isSafeInteger(count) ? count : null;
}

/** Begins the line that says that a command has started. Another first line is the Engine's reason why it did not. */
const BEGUN = "corral-begun ";

/**
 * Looks up the program itself, as the gate does: for a missing program the Engine would print its own message into the
 * command's output, with an exit code of its own. The same holds for the directory. An image without a shell uses the
 * gate's. None of the script's variables reach the command's environment. `$0` is the gate's binary.
 *
 * Except at a terminal, whose echo would come between, it first prints a line: that it has started, and how many
 * processes were killed for memory before that.
 */
const RUN_SCRIPT = filledIn(textBeside(import.meta.url, "run-command.sh"), { BEGUN, OOM_KILLS_SCRIPT });

/** The argument list of a command, which the script above starts. `told`: it begins with that line. */
export function commandArguments({ cwd, argv }: { cwd: string; argv: readonly string[] }, told: boolean): string[] {
  return [GATE_PATH, "sh", "-c", RUN_SCRIPT, GATE_PATH, told ? "told" : "quiet", cwd, ...argv];
}

/** A first line is short: `BEGUN` and a count, or an error of the Engine. */
const MAX_FIRST_LINE_BYTES = 1024;

/** Removes the first line from a stream and passes the rest on. */
export class FirstLine {
  #begun = Buffer.alloc(0);
  /** Null if the stream has no complete line yet. */
  line: string | null = null;

  /** True if the line says that the command has started. */
  get hasBegun(): boolean {
    return this.line?.startsWith(BEGUN) === true;
  }

  /** How many processes were killed for memory before that; null if it is not known. */
  get oomKillsBefore(): number | null {
    return this.hasBegun ? parseOomKills((this.line ?? "").slice(BEGUN.length)) : null;
  }

  /** What follows the line in this piece of the stream. */
  add(chunk: Buffer): Buffer {
    if (this.line !== null) return chunk;
    this.#begun = Buffer.concat([this.#begun, chunk.subarray(0, MAX_FIRST_LINE_BYTES)]);
    const end = this.#begun.indexOf("\n");
    if (end < 0) return Buffer.alloc(0);
    this.line = this.#begun.toString("latin1", 0, end);
    const taken = end + 1 - (this.#begun.length - Math.min(chunk.length, MAX_FIRST_LINE_BYTES));
    return chunk.subarray(taken);
  }
}
