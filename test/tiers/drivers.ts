/** Whether the tests of this process make cells of runc, and not the Engine's. */
export const ON_RUNC = process.env.CORRAL_DRIVER === "runc";

/**
 * What of the tier `engine` runs on both drivers: every attack, every agreement of validator and kernel, and what else depends
 * on how a cell is made. The contract of drivers is in `test/isolation/`, which calls both itself. The rest runs on the Engine.
 */
const ON_BOTH = ["test/attacks/", "test/agreement/", "test/run/session/", "test/run/calls/"];

const NO_CELL = "makes no cell";
const ENGINE_ITSELF = "is about what the Engine has: its objects, labels, images or sockets";
const BEFORE_CELLS = "attacks what Corral reads, asks or refuses on the host, before or beside any cell";

/** Of these, the files that run on the Engine alone, each with its reason. */
export const ENGINE_ONLY: Readonly<Record<string, string>> = {
  "test/attacks/changeset-size.test.ts": BEFORE_CELLS,
  "test/attacks/ci/hostile-branch.test.ts": BEFORE_CELLS,
  "test/attacks/ci/runner-output.test.ts": BEFORE_CELLS,
  "test/attacks/completion.test.ts": NO_CELL,
  "test/attacks/hostile-archive.test.ts": NO_CELL,
  "test/attacks/images.test.ts": ENGINE_ITSELF,
  "test/attacks/labels.test.ts": ENGINE_ITSELF,
  "test/attacks/reading-consent.test.ts": BEFORE_CELLS,
  "test/attacks/service/contents.test.ts": BEFORE_CELLS,
  "test/attacks/service/other-sites.test.ts": BEFORE_CELLS,
  "test/attacks/service/requests.test.ts": BEFORE_CELLS,
  "test/attacks/without-project.test.ts": BEFORE_CELLS,
  "test/run/session/lost.test.ts": "stops an Engine in the middle, which cells of runc do not need",
};

/** The files that run a second time, on cells of runc. `engine`: those of that tier. */
export function alsoOnRunc(engine: readonly string[]): string[] {
  return engine.filter((file) => ON_BOTH.some((place) => file.startsWith(place)) && ENGINE_ONLY[file] === undefined);
}
