import { readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { expect, it } from "vitest";

const SRC = join(import.meta.dirname, "../../../src");

/** What a command loads that asks a service: the parser, the verbs' options, and the code of each verb that goes over a host. */
const ENTRIES = [
  "cli/program.ts",
  ...readdirSync(join(SRC, "cli/verbs")).map((name) => `cli/verbs/${name}`),
  ...readdirSync(join(SRC, "cli/host")).map((name) => `cli/host/${name}`),
  "cli/changes/apply.ts",
  "cli/changes/changes.ts",
  "cli/changes/targets.ts",
  "cli/consent/approvals.ts",
  "cli/consent/person.ts",
  "cli/consent/review.ts",
  "cli/convert/convert.ts",
  "cli/convert/remote-convert.ts",
  "cli/fleet/fleet.ts",
  "cli/fleet/live-screen.ts",
  "cli/fleet/remote-fleet.ts",
  "cli/history/runs.ts",
  "cli/machine/machine.ts",
  "cli/machine/machine.ts",
  "cli/project/explain.ts",
  "cli/project/explain.ts",
  "cli/run/screen.ts",
  "cli/run/remote-run.ts",
  "cli/session/held.ts",
  "cli/session/ports.ts",
  "cli/session/remote-tool.ts",
  "cli/session/snapshots.ts",
  "cli/session/transfers.ts",
  "cli/terminal/failure.ts",
  "cli/trail/audit.ts",
];

/** What of the machine's own code may be loaded: types of errors, names of paths and pure functions, which touch nothing when they are loaded. */
const HARMLESS = [
  "files/host/system-program.ts",
  "fleet/items/item-fields.ts",
  "fleet/model/item.ts",
  "fleet/model/queue.ts",
  "fleet/report/measures/gathered.ts",
  "fleet/report/measures/statistics.ts",
  "fleet/report/results-export.ts",
  "isolation/plan/plan.ts",
  "isolation/port/driver.ts",
  "isolation/port/engine.ts",
  "isolation/port/images.ts",
  "operations/convert/converted.ts",
  "operations/convert/layout.ts",
  "run/calls/call.ts",
  "run/model/result.ts",
  "state/state-dir.ts",
];
const OF_MACHINE =
  /^(agent|audit|blobs|changes|egress|files|fleet|git|history|inbox|isolation|library|mcp|run|serve|state|tools)\//;
const OPERATIONS = /^operations\/(?!contract\/|wording\/|request-error\.ts$)/;

const IMPORT = /^\s*(?:import|export)\s(?!type\s)(?:([^;"'`]*?)\s)?from\s*["']([^"']+)["']/gm;

/** What runs when a module is loaded: imports of values, not those on demand. */
function loadedBy(path: string): string[] {
  const code = readFileSync(join(SRC, path), "utf8");
  return [...code.matchAll(IMPORT)].flatMap(([, names = "", from = ""]) => {
    const listed =
      /^\{([^}]*)\}$/s
        .exec(names.trim())?.[1]
        ?.split(",")
        .map((name) => name.trim()) ?? null;
    const isOfTypes = listed?.every((name) => name === "" || name.startsWith("type ")) ?? false;
    if (isOfTypes) return [];
    return from.startsWith(".") ? [posix.join(posix.dirname(path), from)] : [from];
  });
}

/** Each with the way to it. */
function loadedWith(entries: readonly string[]): Map<string, string> {
  const ways = new Map(entries.map((path) => [path, path]));
  for (const [path, way] of ways) {
    if (!path.endsWith(".ts")) continue;
    for (const next of loadedBy(path)) if (!ways.has(next)) ways.set(next, `${way} > ${next}`);
  }
  return ways;
}

it("loads for a command over a host nothing that makes containers, and nothing that Linux alone has", () => {
  const loaded = loadedWith(ENTRIES);
  const foreign = [...loaded].filter(
    ([path]) => !HARMLESS.includes(path) && (OF_MACHINE.test(path) || OPERATIONS.test(path)),
  );
  expect(foreign.map(([, way]) => way)).toEqual([]);
  const packages = [...loaded.keys()].filter((path) => !path.endsWith(".ts") && !path.startsWith("node:"));
  expect(packages.toSorted()).toEqual([
    "@clack/prompts",
    "commander",
    "fastest-levenshtein",
    "log-update",
    "picocolors",
    "picomatch",
    "tar-stream",
    "yaml",
    "zod",
  ]);
});

/** What a command in Seatbelt loads of the machine's own code: the profile, its start, and what derives a sandbox. */
const ON_MAC = [
  "isolation/seatbelt/profile.ts",
  "isolation/seatbelt/start.ts",
  "isolation/sources/host-executed.ts",
  "run/model/job.ts",
  "run/model/permission.ts",
  "run/model/result.ts",
  "state/state-dir.ts",
  "files/host/system-program.ts",
];

it("loads for a command in macOS's Seatbelt nothing that makes containers, and nothing that Linux alone has", () => {
  const loaded = [...loadedWith(["cli/run/seatbelt.ts"])].filter(
    ([path]) => OF_MACHINE.test(path) || OPERATIONS.test(path),
  );
  expect(loaded.map(([path]) => path).toSorted()).toEqual(ON_MAC.toSorted());
});

it("lists no file as harmless that is not loaded", () => {
  const loaded = loadedWith(ENTRIES);
  expect(HARMLESS.filter((path) => !loaded.has(path))).toEqual([]);
});
