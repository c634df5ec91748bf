import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { GATE_PATH } from "./plan.ts";

/** Where a serving cell reads an item's input and writes its command's output. Corral makes these files. */
export const ITEM_IO_PATH = "/.corral/io";

/** The kernel counts shared memory in batches, so a little may seem to be left. */
const MAX_SHARED_KIB = 1024;

/**
 * A serving cell's first process: for each line `run ID` of its input it runs the worker's command once, and then
 * scrubs: it ends every other process at once, empties everything that can be written in memory, checks that nothing is
 * left, and only then answers `ended ID CODE KILLED`. `KILLED` counts the processes that the kernel has killed for memory.
 *
 * A descriptor on its way between two Unix sockets outlives every process, and keeps open whatever it names. While there
 * is a socket in the cell's network namespace, of any kind, the cell is not clean; nor while it uses memory that no file
 * and no process explains. Sockets that only refer to each other are freed when the kernel looks for them, which it does
 * when some Unix socket is closed: `logger` opens one and closes it.
 *
 * It has the worker's own rights, because no process in a cell can change its user. The worker cannot influence it:
 * it is process 1, which no signal from inside its namespace ends, and it ignores SIGINT, which a shell would handle;
 * its binary can be executed and not read, so the kernel lets no process trace it or open its descriptors; the seccomp
 * profile of a serving cell lets no process change another one's limits or priority; and the worker inherits none of its
 * descriptors. Each item has a session of its own, so no signal to its process group or terminal reaches the first
 * process or another item. So an item cannot forge its exit status or its end, write into the output of another item, or
 * restrict the items after it (docs/facts.md, fact: cell-reuse).
 *
 * A cell that is not clean afterwards reports it and ends: `dirty ID CODE KILLED WHAT`.
 *
 * The shell reads byte by byte, with two system calls for each, and three files about System V objects begin with a long line. So
 * they stay open behind that line, where a read gives the objects that there are now. Kernels before 5.8 may not find an
 * object again from there (some of 2020 move on at the end of the file), so there the files are read anew.
 *
 * Its variables have names that no worker's environment uses: else they would be exported, and an item could read the
 * exit code of the one before. A fork may fail, because dead processes still count against the limit; then it continues.
 */
const SERVE_SCRIPT = filledIn(textBeside(import.meta.url, "serve.sh"), { MAX_SHARED_KIB, ITEM_IO_PATH });

/**
 * The command of a serving cell. `places` are the directories in memory that are emptied after each item, `memoryBytes` is the
 * cell's limit: a quarter of it is how much an item may leave in caches of the kernel that are not files. The script
 * looks up the worker's command itself, as the gate does: this shell would prefer its own applets.
 */
export function serveCommand(command: readonly string[], places: readonly string[], memoryBytes: number): string[] {
  const lines = places.map((place) => `${place}\n`).join("");
  return [GATE_PATH, "sh", "-c", SERVE_SCRIPT, GATE_PATH, lines, String(memoryBytes), ...command];
}
