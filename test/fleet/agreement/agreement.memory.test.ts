import { expect, it } from "vitest";
import { agreedFacts, whyDifferent } from "../../../src/fleet/cache/agreement.ts";
import type { FleetSpec } from "../../../src/fleet/model/item.ts";
import { fleetPermission } from "../../../src/fleet/running/fleet-parts.ts";
import { memoryEngine } from "../../run/memory-engine.ts";
import { openProject, type ProjectSpec } from "../../run/project-fixture.ts";

const SPEC: FleetSpec = {
  ...{ version: 1, worker: "w", policy: null, concurrency: 3, reuse: "fresh", timeoutMs: null, retries: 0 },
  ...{ maxFailures: null, cache: false, source: "a test" },
};
const PROJECT: ProjectSpec = {
  policy: "batch",
  zones: { data: "ro", out: "rw" },
  workers: {
    w: {
      command: ["w"],
      calls: ["helper"],
      sandbox: { zones: [{ name: "data" }, { name: "out", mode: "rw", approval: "pre_approved" }] },
    },
    helper: { command: ["helper"] },
    other: { command: ["other"] },
  },
};

async function factsOf(spec: ProjectSpec, { image = "same", version = "1", unmade = "" } = {}) {
  await using project = await openProject(spec, { engine: memoryEngine({ programs: {} }).open });
  const { environment } = project.corral;
  const { driver } = environment;
  const imageFacts: typeof driver.imageFacts = async (name) =>
    image === "" ? null : { name, id: image, env: [], volumes: [] };
  const violation = {
    code: "IMAGE_NOT_MADE",
    image: "images/ocr",
    reason: unmade,
    get: "corral images build images/ocr",
  } as const;
  const images: typeof environment.images =
    unmade === "" ? environment.images : { ready: async () => ({ state: "refused", violations: [violation] }) };
  const env = { ...environment, images, driver: { ...driver, imageFacts } };
  const permission = await fleetPermission(SPEC, env);
  if (!permission.ok) throw new Error(JSON.stringify(permission));
  return await agreedFacts(permission, env, { version, signal: new AbortController().signal });
}

it("agrees with a copy of the project in another directory, and with changes that the fleet does not use", async () => {
  const { workers = {} } = PROJECT;
  const { facts: first } = await factsOf(PROJECT);
  expect(whyDifferent(await factsOf(PROJECT), first)).toBeNull();
  const changed = { ...workers, other: { command: ["another"] }, w: { ...workers.w, description: "New." } };
  expect(whyDifferent(await factsOf({ ...PROJECT, workers: changed }), first)).toBeNull();
  expect(Object.keys(first.declarations)).toContain("worker helper: command");
});

it("names exactly what differs, also in a worker that is only called", async () => {
  const { workers = {} } = PROJECT;
  const { facts: theirs } = await factsOf(PROJECT);
  const differing = async (spec: Partial<ProjectSpec>, how = {}) =>
    whyDifferent(await factsOf({ ...PROJECT, ...spec }, how), theirs);
  const way = ": use the same version of the project here";
  expect(await differing({ workers: { ...workers, w: { ...workers.w, command: ["w", "-v"], env: { A: "1" } } } })).toBe(
    `worker w differs in command, env${way}`,
  );
  expect(await differing({ workers: { ...workers, helper: { command: ["sh"] } } })).toBe(
    `worker helper differs in command${way}`,
  );
  expect(await differing({ yaml: { approval: { mode: "auto_deny" } } })).toBe(`approval differs${way}`);
  const readsLess = { ...workers.w, sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] } };
  expect(await differing({ workers: { ...workers, w: readsLess } })).toBe(
    `worker w differs in needs; mount /data is missing here${way}`,
  );
  expect(await differing({}, { version: "2" })).toBe(`Corral's version differs${way}`);
  expect(await differing({}, { image: "new" })).toMatch(
    /^the image corral\/base is another one here: make or load the same image here$/,
  );
  expect(await differing({}, { image: "" })).toMatch(/^the image corral\/base is missing here/);
  expect(await differing({}, { image: "", unmade: "the registry does not answer" })).toBe(
    "the image corral/base is missing here: make or load the same image here. 'images/ocr' is not there: the registry does not answer. " +
      "Correct that and run it again; `corral images build images/ocr` shows the whole.",
  );
});
