/**
 * What of the tier `engine` is about cells themselves: every attack, every agreement of validator and kernel, the commands of
 * cells, and what a kill leaves. How calls are decided is the host's; attacks by calls are on both. It runs on runc where that makes cells, as all of the tier, and again on the Engine. The contract of
 * drivers is in `test/isolation/`, which calls both drivers itself.
 */
const ABOUT_CELLS = [
  "test/attacks/",
  "test/agreement/",
  "test/cli/standard-input.test.ts",
  "test/run/changes/staged-reaping.test.ts",
  "test/run/death-watch.test.ts",
  "test/run/reaping.test.ts",
  "test/run/session/",
  "test/run/statuses.test.ts",
];

const NO_CELL = "makes no cell";
const ON_HOST =
  "attacks what Corral does on the host: consent, files, changes, records, other faces. Any cell is a means for it";
const SAME_MOUNTS = "compares tools with the mounts of a session, which `agreement/agreement` compares on both drivers";
const JUDGED_ON_HOST =
  "attacks how connections are judged, which is done on the host; `egress/namespace` and `agreement/network` are about the cell's side";

const TOOLS_ON_HOST =
  "calls tools by the socket of a cell, which Corral answers on the host; `attacks/swap-race` and `run/lost` use it in cells of the Engine";
const SAME_INSIDE =
  "attacks from the inside of a cell, without the driver: `isolation/runc/like-the-engine` compares what is inside for each policy, `attacks/escape` and `attacks/exec` are on both";
const DERIVED_ON_HOST =
  "attacks what a run is given, which is derived on the host; `agreement/agreement` compares that with the mounts of both drivers";
const SCRUBBED = "attacks what a machine does between items; `attacks/scrubbed` is on both";
const NEVER_IN_CELLS =
  "looks for a secret that no cell is given; `attacks/secrets` looks for those of the host, and `secrets/delivery` for those of a cell, on both";

/** Of these, the files that run once, each with its reason. */
export const ONCE: Readonly<Record<string, string>> = {
  "test/agreement/consent-table.test.ts": SAME_MOUNTS,
  "test/attacks/agreement.test.ts": ON_HOST,
  "test/attacks/changeset-size.test.ts": ON_HOST,
  "test/attacks/ci/hostile-branch.test.ts": ON_HOST,
  "test/attacks/ci/pull-requests.test.ts":
    "attacks what `corral ci` does on the host with a head; `attacks/escape`, `attacks/exhaustion` and `run/death-watch` are about its cells, on both",
  "test/attacks/ci/runner-output.test.ts": ON_HOST,
  "test/attacks/completion.test.ts": NO_CELL,
  "test/attacks/egress/addresses.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/answers.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/bounds.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/budgets.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/http.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/lock-files.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/names.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/secrets.test.ts": NEVER_IN_CELLS,
  "test/attacks/egress/slow.test.ts": JUDGED_ON_HOST,
  "test/attacks/egress/tls.test.ts": JUDGED_ON_HOST,
  "test/attacks/fleet-review.test.ts": ON_HOST,
  "test/attacks/git.test.ts": ON_HOST,
  "test/attacks/grants.test.ts": DERIVED_ON_HOST,
  "test/attacks/held-up.test.ts": ON_HOST,
  "test/attacks/history.test.ts": ON_HOST,
  "test/attacks/host-grants.test.ts": ON_HOST,
  "test/attacks/hostile-archive.test.ts": ON_HOST,
  "test/attacks/inbox.test.ts": ON_HOST,
  "test/attacks/keys.test.ts": NEVER_IN_CELLS,
  "test/attacks/machines/forged-requests.test.ts": DERIVED_ON_HOST,
  "test/attacks/machines/shared-cells.test.ts": SCRUBBED,
  "test/attacks/mcp.test.ts": ON_HOST,
  "test/attacks/obeying-model/calls.test.ts": ON_HOST,
  "test/attacks/obeying-model/consent.test.ts": ON_HOST,
  "test/attacks/obeying-model/exec.test.ts": SAME_INSIDE,
  "test/attacks/obeying-model/exhaustion.test.ts": ON_HOST,
  "test/attacks/obeying-model/links.test.ts": ON_HOST,
  "test/attacks/obeying-model/paths.test.ts": ON_HOST,
  "test/attacks/obeying-model/tools.test.ts": ON_HOST,
  "test/attacks/one-yes.test.ts": ON_HOST,
  "test/attacks/secrets/escalation.test.ts": ON_HOST,
  "test/attacks/secrets/masking.test.ts": ON_HOST,
  "test/attacks/service/contents.test.ts": ON_HOST,
  "test/attacks/service/hostile-clients.test.ts": ON_HOST,
  "test/attacks/service/hostile-texts.test.ts": ON_HOST,
  "test/attacks/service/other-sites.test.ts": NO_CELL,
  "test/attacks/service/page-policy.test.ts": NO_CELL,
  "test/attacks/service/requests.test.ts": ON_HOST,
  "test/attacks/service/unseen.test.ts": ON_HOST,
  "test/attacks/services.test.ts":
    "attacks by what a session's cell is on both drivers (`attacks/commands`, `run/death-watch`); Corral's part is on the host",
  "test/attacks/shell-rules.test.ts": ON_HOST,
  "test/attacks/snapshots.test.ts":
    "attacks layers of views, which Corral makes on the host; `run/session/snapshots` shows them in cells of both",
  "test/attacks/staged-changes.test.ts": ON_HOST,
  "test/attacks/without-project.test.ts": ON_HOST,
  "test/run/session/consent.test.ts": ON_HOST,
  "test/run/session/constraints.test.ts": DERIVED_ON_HOST,
  "test/run/session/limits.test.ts": SAME_INSIDE,
  "test/run/session/narrow.test.ts": DERIVED_ON_HOST,
  "test/run/session/socket.test.ts": TOOLS_ON_HOST,
  "test/run/session/write-room.test.ts": ON_HOST,
};

const ENGINE_ITSELF =
  "makes containers, volumes or images on the Engine itself, and looks at what Corral does with them";
const ENGINE_STOPS = "stops an Engine in the middle, or breaks its answers, on which cells of runc do not depend";

const BUILDS =
  "builds an image, whose base a cell of runc would have exported and unpacked once more; `attacks/images` has cells of built images on both";

/** The files of the tier that run on the Engine alone, each with its reason. */
export const ENGINE_ONLY: Readonly<Record<string, string>> = {
  "test/attacks/labels.test.ts": ENGINE_ITSELF,
  "test/examples/images-page.test.ts": BUILDS,
  "test/run/docker-tools.test.ts": ENGINE_ITSELF,
  "test/faults/faults.test.ts": ENGINE_STOPS,
  "test/faults/lying-engine.test.ts": ENGINE_STOPS,
  "test/fleet/engine-killed.test.ts": ENGINE_STOPS,
  "test/run/images/own-images.test.ts": BUILDS,
  "test/run/lost.test.ts": ENGINE_STOPS,
  "test/run/session/lost.test.ts": ENGINE_STOPS,
};

export interface Files {
  readonly runc: readonly string[];
  readonly engine: readonly string[];
}

/** Which files run in the project `runc`, and which on the Engine. `tier`: those of the tier `engine`. `hasRunc`: false if that project is on the Engine too. */
export function filesByDriver(tier: readonly string[], { hasRunc }: { readonly hasRunc: boolean }): Files {
  const isTwice = (file: string): boolean =>
    hasRunc && ONCE[file] === undefined && ABOUT_CELLS.some((place) => file.startsWith(place));
  return {
    runc: tier.filter((file) => ENGINE_ONLY[file] === undefined),
    engine: tier.filter((file) => ENGINE_ONLY[file] !== undefined || isTwice(file)),
  };
}
