import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/**
 * `unit`: needs packages alone and is quick. `long`: the same, but takes many seconds. `engine`: needs an Engine and its
 * images, or the built package.
 */
export type Tier = "unit" | "long" | "engine";

/** A test that loads one of these, however far down, or starts it as a process, can reach the Engine. */
const REACHES_ENGINE = ["src/isolation/open-engine.ts", "src/isolation/engine/open.ts", "test/cli/program.ts"];
/** Tests that use the built package, or the examples with it; no import shows that. A fresh clone has no `dist/`, and `npm run test:unit` makes none. */
const USES_PACKAGE = ["test/package.test.ts", "test/public-types.test.ts", "test/examples/"];
/** Tests that try something thousands of times, start hundreds of programs, write huge files or wait for real limits. */
export const LONG = [
  "test/agent/asked-again.test.ts",
  "test/attacks/changeset-apply.test.ts",
  "test/attacks/host-files.test.ts",
  "test/attacks/hostile-manifest.test.ts",
  "test/audit/processes.test.ts",
  "test/changes/apply/kill-at-each-step.test.ts",
  "test/changes/scan/scan.test.ts",
  "test/changes/stage.test.ts",
  "test/changes/wire/round-trip.test.ts",
  "test/declarations/bounded-mismatch.test.ts",
  "test/files/unusual-files.test.ts",
  "test/fleet/items/million-lines.test.ts",
  "test/fleet/journal/killed.test.ts",
  "test/fleet/journal/processes.test.ts",
  "test/fleet/simulation/schedules.test.ts",
  "test/git/pull.test.ts",
  "test/git/stage.test.ts",
  "test/isolation/engine/cell-remains.test.ts",
  "test/sandbox/network/network.property.test.ts",
  "test/state/file-lock.test.ts",
];

/** Of the tier `engine`, those that take longest, 20 s and more beside other work: they begin first. */
export const SLOW = [
  "test/attacks/ci/hostile-branch.test.ts",
  "test/attacks/commands.test.ts",
  "test/attacks/egress/bounds.test.ts",
  "test/attacks/egress/slow.test.ts",
  "test/attacks/environments.test.ts",
  "test/attacks/exec.test.ts",
  "test/attacks/images.test.ts",
  "test/cli/map.test.ts",
  "test/cli/ordinary-user.test.ts",
  "test/cli/run.test.ts",
  "test/containers/servers.test.ts",
  "test/examples/ci.test.ts",
  "test/examples/inbox.test.ts",
  "test/examples/ordinary-user.test.ts",
  "test/faults/faults.test.ts",
  "test/faults/lying-engine.test.ts",
  "test/fleet/elsewhere/machines.test.ts",
  "test/fleet/engine-killed.test.ts",
  "test/fleet/fleet.test.ts",
  "test/fleet/resume.test.ts",
  "test/images/contents.test.ts",
  "test/isolation/engine/cell.test.ts",
  "test/isolation/engine/images.test.ts",
  "test/isolation/runc/killed.test.ts",
  "test/mcp/http/places.test.ts",
  "test/mcp/inspector.test.ts",
  "test/mcp/stdio.test.ts",
  "test/package.test.ts",
  "test/run/agent/providers.test.ts",
  "test/run/changes/disk-limit.test.ts",
  "test/run/images/environments.test.ts",
  "test/run/images/own-images.test.ts",
  "test/run/lost.test.ts",
  "test/run/session/lost.test.ts",
  "test/run/statuses.test.ts",
  "test/serve/restart.test.ts",
];

/**
 * What every store of fleets and of blobs promises: these run on SQLite and directories in the tier `unit`, and again on a PostgreSQL server, or on
 * PGlite where there is none.
 */
export const STORES = [
  "test/blobs/blob-store.test.ts",
  ...[
    "begun-items",
    "item-details",
    "journal",
    "journal-queue",
    "pace",
    "queue.property",
    "results",
    "retry-in-place",
  ].map((name) => `test/fleet/journal/${name}.test.ts`),
];
/** What only a store promises that machines can reach: these are in no tier, and run on a server, or on PGlite. */
export const SHARED_STORES = ["test/fleet/postgres/work.test.ts"];
/** What needs a PostgreSQL server of its own or several users: these run on the server alone. */
export const ON_SERVER = [
  ...[
    "lost-connection",
    "restored",
    "rows-read",
    "machine-role",
    "machine-over-tls",
    "state-directories",
    "named-later",
    "pooler",
    "questions",
    "silent-network",
  ].map((name) => `test/fleet/postgres/${name}.test.ts`),
  ...["hostile-role", "cached-results", "forged-deliveries"].map((name) => `test/attacks/machines/${name}.test.ts`),
];

/**
 * The tier of each test file below `root`, from what the file loads, so that no list has to be kept. A file that ends in
 * `.memory.test.ts` opens projects on the engine in memory: it loads what connects, and may not use it.
 */
export function tiersOf(root: string): Record<Tier, string[]> {
  const tiers: Record<Tier, string[]> = { unit: [], long: [], engine: [] };
  const loads = loadedBelow(root);
  for (const file of globSync("test/**/*.test.ts", { cwd: root }).sort())
    if (![...SHARED_STORES, ...ON_SERVER].includes(file)) tiers[tierOf(file, loads)].push(file);
  return tiers;
}

/** `loads`: the files that a file loads itself. */
export function tierOf(file: string, loads: (file: string) => readonly string[]): Tier {
  if (USES_PACKAGE.some((place) => file.startsWith(place))) return "engine";
  if (file.endsWith(".memory.test.ts")) return "unit";
  const loaded = new Set([file]);
  for (const each of loaded) {
    if (REACHES_ENGINE.includes(each)) return "engine";
    for (const further of loads(each)) loaded.add(further);
  }
  return LONG.includes(file) ? "long" : "unit";
}

function loadedBelow(root: string): (file: string) => readonly string[] {
  const known = new Map<string, readonly string[]>();
  const isFile = (path: string): boolean => existsSync(join(root, path));
  return (file) => {
    const loaded = known.get(file) ?? namedIn(readFileSync(join(root, file), "utf8"), file).filter(isFile);
    known.set(file, loaded);
    return loaded;
  };
}

const TYPE_IMPORT = /^\s*(?:import|export)\s+type\s[^;]*;/gm;
const QUOTED = /["'`]([^"'`\s]+\.ts)["'`]/g;

/** Every source file that a file names in quotes: in an import, or for a process or a thread of its own. */
export function namedIn(code: string, file: string): string[] {
  return [...code.replaceAll(TYPE_IMPORT, "").matchAll(QUOTED)].map(([, path = ""]) => {
    // A path from the root, or within a copy of the sources.
    const fromRoot = /(?:^|\w\/)(src\/.*)/.exec(path)?.[1];
    return fromRoot ?? join(dirname(file), path);
  });
}
