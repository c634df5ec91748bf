/** True if the tests that repeat something shall repeat it as often as they can (`CORRAL_LONG=1 npm test`). */
export const AT_LENGTH = process.env.CORRAL_LONG === "1";

/**
 * What of the tier `engine` is about cells themselves: every attack, every agreement of validator and kernel, commands and calls
 * of cells, and what a kill leaves. It runs on what `auto` takes, as all of the tier, and again on the Engine. The contract of
 * drivers is in `test/isolation/`, which calls both drivers itself.
 */
const ABOUT_CELLS = [
  "test/attacks/",
  "test/agreement/",
  "test/run/calls/",
  "test/run/changes/staged-reaping.test.ts",
  "test/run/reaping.test.ts",
  "test/run/session/",
  "test/run/statuses.test.ts",
];

const NO_CELL = "makes no cell";
const OWN_CELLS = "is about what Corral stores and shows after cells, which is the same for all";

/** Of these, the files that run once, each with its reason. */
export const ONCE: Readonly<Record<string, string>> = {
  "test/attacks/changeset-size.test.ts": OWN_CELLS,
  "test/attacks/ci/hostile-branch.test.ts": OWN_CELLS,
  "test/attacks/ci/runner-output.test.ts": NO_CELL,
  "test/attacks/completion.test.ts": NO_CELL,
  "test/attacks/service/contents.test.ts": OWN_CELLS,
  "test/attacks/service/other-sites.test.ts": NO_CELL,
  "test/attacks/service/page-policy.test.ts": NO_CELL,
  "test/attacks/service/requests.test.ts": NO_CELL,
};

const ENGINE_ITSELF =
  "makes containers, volumes or images on the Engine itself, and looks at what Corral does with them";
const ENGINE_STOPS = "stops an Engine in the middle, or breaks its answers, on which cells of runc do not depend";

/** The files of the tier that run on the Engine alone, each with its reason. */
export const ENGINE_ONLY: Readonly<Record<string, string>> = {
  "test/attacks/labels.test.ts": ENGINE_ITSELF,
  "test/faults/faults.test.ts": ENGINE_STOPS,
  "test/faults/lying-engine.test.ts": ENGINE_STOPS,
  "test/run/lost.test.ts": ENGINE_STOPS,
  "test/run/session/lost.test.ts": ENGINE_STOPS,
};

export interface Files {
  readonly auto: readonly string[];
  readonly engine: readonly string[];
}

/** Which files run on what `auto` takes, and which on the Engine. `tier`: those of the tier `engine`. */
export function filesByDriver(tier: readonly string[], { autoIsEngine }: { readonly autoIsEngine: boolean }): Files {
  const isTwice = (file: string): boolean =>
    !autoIsEngine && ONCE[file] === undefined && ABOUT_CELLS.some((place) => file.startsWith(place));
  return {
    auto: tier.filter((file) => ENGINE_ONLY[file] === undefined),
    engine: tier.filter((file) => ENGINE_ONLY[file] !== undefined || isTwice(file)),
  };
}
