import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { loadPolicy } from "../../../src/declarations/policy/policy.ts";
import { loadProject } from "../../../src/declarations/project.ts";
import { suggestedConfiguration } from "../../../src/run/grants/suggestion/suggestion.ts";
import type { RunEnvironment } from "../../../src/run/model/environment.ts";
import type { HostGrantRecord } from "../../../src/run/model/grantee.ts";
import { permissionOf, rootSandbox } from "../../../src/run/model/permission.ts";
import { reachesHost } from "../../../src/sandbox/network/hosts.ts";
import type { NetworkRule } from "../../../src/sandbox/network/rule.ts";
import { projectFolder } from "../../declarations/project-folder.ts";

const API = "api.example.org:443";
const workerFile = (sandbox: string) => `---
command: [ls] # nothing else
sandbox:
${sandbox}
---
For people.
`;

/** The files as suggested after the worker `w` was granted this, as they are in the project's folder then. */
async function suggested(yaml: string | null, worker: string, rules: readonly NetworkRule[]) {
  const dir = await projectFolder({
    ...(yaml === null ? {} : { "corral.yaml": yaml }),
    "workers/w.worker": workerFile(worker),
  });
  const grants = rules.map((rule): HostGrantRecord => {
    const who = { id: "1", run: "r", root: "r", worker: "w", through: ["w"], granted: ["w"] };
    return { ...who, to: rule.to, rules: [rule], scope: "session", why: "", grantedAt: "" };
  });
  const { files, notes } = suggestedConfiguration({
    project: { dir, file: "corral.yaml", text: yaml },
    mounts: [],
    workers: new Map([["w", { file: "workers/w.worker", text: workerFile(worker) }]]),
    grants,
  });
  expect(notes).toEqual([]);
  for (const { file, text } of files) await writeFile(join(dir, file), text);
  return { dir, files };
}

async function networkOf(dir: string) {
  const project = await loadProject(dir);
  const env = { project, policyNamed: (name: string) => loadPolicy(name, { dirs: [] }) } as unknown as RunEnvironment;
  const [root, worker] = [await rootSandbox(env, null), project.workers.get("w")];
  if (worker === undefined) throw new Error(JSON.stringify(root));
  const derivation = await permissionOf(worker, root, null, env);
  if (!derivation.ok) throw new Error(JSON.stringify(derivation.violations));
  return derivation.sandbox.network;
}

describe("the suggested configuration for hosts", () => {
  it.each<readonly [string, string | null, string]>([
    ["a folder without corral.yaml", null, "  readonly: true"],
    ["a project without a sandbox and a worker without a network", "version: 1\n", "  readonly: true"],
    ["a project that says no", "version: 1\nsandbox: { paths: {}, network: false }\n", "  network: false"],
    [
      "lists in brackets",
      "version: 1\nsandbox: { paths: {}, network: { allow: [b.test:443] } }\n",
      "  network: { allow: [b.test:443] }",
    ],
    [
      "lists on lines of their own",
      "version: 1\nsandbox:\n  paths: {}\n  network:\n    allow:\n      - b.test:443 # this one\n",
      "  network:\n    allow:\n      - b.test:443",
    ],
    [
      "a project that has it",
      `version: 1\nsandbox: { paths: {}, network: { allow: ["*.example.org:443"] } }\n`,
      "  inherit: true",
    ],
    ["a project that has everything", "version: 1\nsandbox: { paths: {}, network: true }\n", "  inherit: true"],
  ])("of %s needs no question any more", async (_, yaml, worker) => {
    const { dir, files } = await suggested(yaml, worker, [{ to: API }, { to: "c.test:80" }]);
    const network = await networkOf(dir).catch((error: Error) => error.message);
    expect(
      typeof network === "object" && [API, "c.test:80"].every((to) => reachesHost(network, to)),
      JSON.stringify(network),
    ).toBe(true);
    const text = files.map((file) => file.text).join("");
    for (const kept of ["# nothing else", "For people.", ...(yaml?.includes("# this") ? ["# this one"] : [])])
      expect(text).toContain(kept);
    if (yaml?.includes("b.test")) expect(reachesHost(network as never, "b.test:443")).toBe(true);
  });

  it("keeps the bounds within which the host was granted", async () => {
    const rule = { to: API, methods: ["GET"], paths: ["/v1/**"] };
    const yaml = `version: 1\nsandbox: { paths: {}, network: { allow: [{ to: "${API}", methods: [GET], paths: [/v1/**] }] } }\n`;
    const { dir, files } = await suggested(yaml, "  readonly: true", [rule]);
    expect(files.map(({ file }) => file)).toEqual(["workers/w.worker"]);
    expect(await networkOf(dir)).toMatchObject({ allow: [rule] });
  });

  it("changes no file that has all of it", async () => {
    const yaml = `version: 1\nsandbox: { paths: {}, network: { allow: ["${API}"] } }\n`;
    const { files } = await suggested(yaml, `  network: { allow: ["${API}"] }`, [{ to: API }]);
    expect(files).toEqual([]);
  });
});
