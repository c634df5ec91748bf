import { spawn } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { type Descriptor, decodedMountField } from "../../files/host/descriptor.ts";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import { onAbort } from "../../platform/on-abort.ts";
import { type TreeUsage, UsageSum } from "./usage-sum.ts";

/** For each name: blocks, number of names of the file, type, and the file's identity. */
const FORMAT = "%b %n %y %D:%i\\n";

/**
 * Measures a tree with GNU find, in a process of its own: it has no limit of depth, and keeps only one folder's names in
 * memory. Null if there is no such program.
 */
export async function listedUsage(root: Descriptor, enough: number, signal: AbortSignal): Promise<TreeUsage | null> {
  signal.throwIfAborted();
  const sum = new UsageSum(enough);
  using folder = root.again().reopenFolder();
  const mounts = mountsBelow(root);
  if (mounts.length > MAX_MOUNTS) return null;
  // Not by their devices: a subvolume has one of its own, and any program can have made it.
  const pruned = mounts.flatMap((path) => [
    "-path",
    `/proc/self/fd/3/./${escaped(path)}`,
    "-prune",
    "-printf",
    FORMAT,
    "-o",
  ]);
  const args = ["/proc/self/fd/3/.", "-mindepth", "1", "-ignore_readdir_race", ...pruned, "-printf", FORMAT];
  const child = spawn("find", args, { stdio: ["ignore", "pipe", "ignore", folder.fd], env: SYSTEM_ENV });
  const ended = new Promise<number | null>((resolve) => {
    child.once("error", () => resolve(null)).once("close", resolve);
  });
  const stop = (): void => void child.kill("SIGKILL");
  using _ = onAbort(signal, stop);
  try {
    let rest = "";
    for await (const chunk of child.stdout?.setEncoding("latin1") ?? []) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) addLine(sum, line);
      if (sum.isEnough) return sum.usage();
    }
    const code = await ended;
    signal.throwIfAborted();
    if (code !== 0 && sum.names === 0) return null;
    // find reports a folder that it could not read.
    if (code !== 0) sum.leaveOut();
    return sum.usage();
  } finally {
    stop();
    await ended;
  }
}

/** More of them make a command line long. */
const MAX_MOUNTS = 500;

/** Relative to the directory. */
function mountsBelow(root: Descriptor): string[] {
  const above = `${readlinkSync(root.path()).replace(/\/$/, "")}/`;
  const paths = readFileSync("/proc/self/mountinfo", "utf8")
    .split("\n")
    .map((line) => decodedMountField(line.split(" ")[4] ?? ""));
  return [...new Set(paths)].filter((path) => path.startsWith(above)).map((path) => path.slice(above.length));
}

/** Of a pattern. */
function escaped(path: string): string {
  return path.replace(/[*?[\\]/g, "\\$&");
}

function addLine(sum: UsageSum, line: string): void {
  const [blocks, names, type, file] = line.split(" ");
  sum.add(Number(blocks), Number(names) > 1 && type !== "d" ? (file ?? null) : null);
}
