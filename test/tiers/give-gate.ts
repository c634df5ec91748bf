import { cp } from "node:fs/promises";
import { inject } from "vitest";
import { makeStateDir } from "../../src/state/state-dir.ts";
import { statePaths } from "../../src/state/state-paths.ts";

/**
 * Makes a state directory that has the gate already. A test that begins with none takes the gate out of its image, which
 * costs as much as a cell.
 */
export async function giveGate(stateDir: string): Promise<void> {
  const taken = inject("stateWithGate");
  await makeStateDir(stateDir);
  if (taken !== undefined) await cp(statePaths(taken).gate, statePaths(stateDir).gate, { recursive: true });
}
