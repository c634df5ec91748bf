import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseAllDocuments, stringify } from "yaml";
import { parseScript } from "../../src/agent/open-script.ts";
import { parseCiYaml } from "../../src/declarations/ci/ci-yaml.ts";
import { corralYaml } from "../../src/declarations/corral-file.ts";
import { fleetYaml } from "../../src/declarations/fleet-yaml.ts";
import { loadPolicy, parsePolicy } from "../../src/declarations/policy/policy.ts";
import { workerYaml } from "../../src/declarations/worker/worker-yaml.ts";

const ROOT = join(import.meta.dirname, "../..");
const STRICTEST = await loadPolicy("untrusted", { dirs: [] });

type Keys = Readonly<Record<string, unknown>>;

/** What a page leaves out of a file because the block is about something else. */
const KINDS: Readonly<Record<string, (keys: Keys) => boolean>> = {
  "corral.yaml": (keys) => corralYaml.safeParse({ version: 1, ...keys }).success,
  "a part of a sandbox": (keys) => corralYaml.safeParse({ version: 1, sandbox: keys }).success,
  worker: (keys) => workerYaml.safeParse("model" in keys ? keys : { command: ["true"], ...keys }).success,
  fleet: (keys) => fleetYaml.safeParse({ version: 1, worker: "w", over: "*", ...keys }).success,
  "ci.yaml": (keys) => parseCiYaml(JSON.stringify({ version: 1, ...keys }), "ci.yaml").ok,
  policy: (keys) => {
    try {
      parsePolicy(stringify({ name: "p", description: "d", extends: "untrusted", ...keys }), "p.yaml", "p", STRICTEST);
      return true;
    } catch {
      return false;
    }
  },
};

/** The kind of file that a block says that it is; null if it does not. */
function namedKind(block: string): string | null {
  if (/^# corral\.yaml$|# in corral\.yaml\b/m.test(block)) return "corral.yaml";
  if (/^# workers\//m.test(block)) return "worker";
  if (/^# fleets\//m.test(block)) return "fleet";
  return /^# policies\//m.test(block) ? "policy" : null;
}

/** What is wrong with a block: a document that no kind of file can have, or not the kind that it names. */
function faultsIn(block: string): string[] {
  const documents = parseAllDocuments(block);
  const wrong = documents.flatMap(({ errors }) => errors.map(({ message }) => message));
  if (wrong.length > 0) return wrong;
  // The text below the front matter of a worker is a document of its own.
  const values = documents.map((one) => one.toJS() as unknown).filter((one) => one !== null && typeof one === "object");
  const named = values.length === 1 ? namedKind(block) : null;
  return values.flatMap((value) => {
    if (Array.isArray(value)) return parseScript(stringify(value), "script.yaml").length > 0 ? [] : ["no script"];
    const kinds = Object.keys(KINDS).filter((kind) => KINDS[kind]?.(value as Keys));
    if (kinds.length === 0) return [`fits in no file: ${JSON.stringify(value)}`];
    return named === null || kinds.includes(named) ? [] : [`is no ${named}`];
  });
}

describe("every YAML of a page", () => {
  it("fits in a file of Corral, and in the one that it names", async () => {
    const faults: string[] = [];
    let count = 0;
    for await (const page of glob(["*.md", "docs/**/*.md", "policies/*.md", "examples/*/README.md"], { cwd: ROOT })) {
      const text = await readFile(join(ROOT, page), "utf8");
      for (const [, reason, block = ""] of text.matchAll(
        /(?:<!-- (not a file of Corral: .+) -->\n\n)?^```yaml\n([\s\S]*?)^```$/gm,
      )) {
        if (reason !== undefined) continue;
        count += 1;
        faults.push(...faultsIn(block).map((fault) => `${page}: ${fault}`));
      }
    }
    expect(count).toBeGreaterThan(20);
    expect(faults).toEqual([]);
  });

  it.each([
    ["limits: { timeout: 30s }", []],
    ["limits: { timeuot: 30s }", ['fits in no file: {"limits":{"timeuot":"30s"}}']],
    ["# corral.yaml\ncommand: [a]", ["is no corral.yaml"]],
    ["---\n# workers/a.worker\ncommand: [a]\n---\nText", []],
    ["a: 1\na: 2", ["Map keys must be unique at line 2, column 1:\n\na: 1\na: 2\n^\n"]],
  ])("would be found if it were %j", (block, faults) => {
    expect(faultsIn(block)).toEqual(faults);
  });
});
