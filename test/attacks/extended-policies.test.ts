import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it, onTestFinished } from "vitest";
import { loadPolicy } from "../../src/declarations/policy/policy.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { HARDENING, HARDENING_LINES, hardeningRow, policyWeaknesses } from "../../src/sandbox/policy.ts";

/** A project's policies, each as the lines below its name. */
async function policies(files: Readonly<Record<string, string>>) {
  const dir = await mkdtemp(join(tmpdir(), "corral-policies-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  for (const [name, lines] of Object.entries(files))
    await writeFile(join(dir, `${name}.yaml`), `name: ${name}\ndescription: a test\n${lines}`);
  return { dirs: [dir] };
}

async function problems(loading: Promise<unknown>): Promise<string[]> {
  const error = await loading.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error === null) return [];
  if (!(error instanceof DeclarationError)) throw error;
  return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`);
}

describe("a policy that extends another", () => {
  it("has all of it but what it says itself, and the chain is known", async () => {
    const search = await policies({
      mine: "extends: default\nlimits: { memory: { max: 2g } }\ntmp: 1m\n",
      nested: "extends: mine\nhardening: { file_watches: false }\n",
    });
    const [parent, mine, nested] = await Promise.all(["default", "mine", "nested"].map((n) => loadPolicy(n, search)));
    expect(mine).toEqual({
      ...parent,
      name: "mine",
      description: "a test",
      inherits: ["default"],
      maxLimits: { ...parent?.maxLimits, memoryBytes: 2 * 1024 ** 3 },
      tmpBytes: 1024 ** 2,
    });
    expect(nested).toEqual({
      ...mine,
      name: "nested",
      inherits: ["mine", "default"],
      hardening: { ...mine?.hardening, fileWatches: false },
    });
  });

  it("is judged by what it comes to, not by its name", async () => {
    const loose = "hardening: { tmp_exec: { value: true, why: this is for a test } }\n";
    const search = await policies({ a: `extends: untrusted\n${loose}`, b: "extends: a\n", c: "extends: untrusted\n" });
    const [a, b, c] = await Promise.all(["a", "b", "c"].map((name) => loadPolicy(name, search)));
    if (!a || !b || !c) throw new Error("not loaded");
    expect(policyWeaknesses(b, c)).toEqual(["tmpExec"]);
    expect(policyWeaknesses(b, a)).toEqual([]);
    expect(policyWeaknesses(c, await loadPolicy("untrusted", search))).toEqual([]);
  });

  it("is refused if the chain is a circle, too long, or leads nowhere", async () => {
    const chain = Object.fromEntries(
      Array.from({ length: 9 }, (_, index) => [
        `p${index}`,
        `extends: ${index === 8 ? "untrusted" : `p${index + 1}`}\n`,
      ]),
    );
    const search = await policies({
      self: "extends: self\n",
      one: "extends: two\n",
      two: "extends: one\n",
      lost: "extends: untrustd\n",
      upwards: "extends: ../../policies/default\n",
      file: "extends: default.yaml\n",
      list: "extends: [default]\n",
      nothing: "extends:\n",
      ...chain,
    });
    const refused = async (name: string) => await problems(loadPolicy(name, search));
    expect(await refused("self")).toEqual(["3:10 extends goes in a circle: self > self"]);
    expect(await refused("one")).toEqual(["3:10 extends goes in a circle: one > two > one"]);
    expect(await refused("lost")).toEqual(["3:10 extends there is no policy of this name, did you mean `untrusted`?"]);
    for (const name of ["upwards", "file"])
      expect((await refused(name)).join(), name).toContain("there is no policy of this name");
    expect((await refused("list")).join()).toContain("extends must be a text, not a list");
    expect((await refused("nothing")).join()).toContain("extends must be a text, not empty");
    expect((await refused("p0")).join()).toContain("a chain of at most 8");
    expect(await refused("p2")).toEqual([]);
  });

  it("cannot shadow one of Corral's own, not even to extend it", async () => {
    const search = await policies({ default: "extends: untrusted\n", mine: "extends: default\n" });
    expect((await problems(loadPolicy("mine", search))).join()).toContain("is one of Corral's own policies");
  });

  it("gives a reason for every line that is looser than the baseline, even if its parent gave one", async () => {
    const loosest = HARDENING_LINES.flatMap((line) => {
      const row = hardeningRow(line);
      const value =
        row.kind === "switch"
          ? !row.strictest
          : row.kind === "capabilities"
            ? "[CAP_CHOWN]"
            : row.kind === "level"
              ? row.levels[0]
              : null;
      return value === null ? [] : [[HARDENING[line].key, value] as const];
    });
    const why = "this is for a test";
    const lines = loosest.map(([key, value]) => `  ${key}: { value: ${value}, why: ${why} }\n`).join("");
    for (const [key, value] of loosest) {
      const search = await policies({
        loose: `extends: default\nhardening:\n${lines}`,
        mine: `extends: loose\nhardening: { ${key}: ${value} }\n`,
        bare: "extends: loose\nreuse: scrubbed\n",
        web: "extends: default\nnetwork: true\n",
      });
      expect((await problems(loadPolicy("mine", search))).join(), key).toContain("is looser than the baseline");
      expect((await problems(loadPolicy("bare", search))).join()).toContain("reuse is looser than the baseline");
      expect((await problems(loadPolicy("web", search))).join()).toContain("network is looser than the baseline");
    }
  });

  it("cannot come to what no policy may be: a filter without its file watches, a default above the most", async () => {
    const engine = "hardening: { seccomp: { value: engine, why: this is for a test } }\n";
    const search = await policies({
      filter: `extends: untrusted\n${engine}`,
      limit: "extends: untrusted\nlimits: { memory: { max: 1k } }\n",
    });
    expect((await problems(loadPolicy("filter", search))).join()).toContain("hardening.file_watches cannot be `false`");
    expect((await problems(loadPolicy("limit", search))).join()).toContain("limits.memory.default must not be larger");
  });

  it("without any looser line is never weaker than its parent, whatever it says", async () => {
    const bare = fc.record(
      {
        hardening: fc.record(
          { root_user: fc.boolean(), tmp_exec: fc.boolean(), seccomp: fc.constantFrom("corral", "engine") },
          { requiredKeys: [] },
        ),
        tmp: fc.integer({ min: 1, max: 2 ** 40 }),
        network: fc.boolean(),
      },
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(bare, fc.constantFrom("default", "ci", "untrusted", "batch"), async (own, name) => {
        const lines = Object.entries(own).map(([key, value]) => `${key}: ${JSON.stringify(value)}\n`);
        const dir = await mkdtemp(join(tmpdir(), "corral-policies-"));
        try {
          await writeFile(join(dir, "p.yaml"), `name: p\ndescription: d\nextends: ${name}\n${lines.join("")}`);
          const [child, parent] = [await loadPolicy("p", { dirs: [dir] }), await loadPolicy(name, { dirs: [] })];
          expect(policyWeaknesses(child, parent)).toEqual([]);
        } catch (error) {
          if (!(error instanceof DeclarationError)) throw error;
        } finally {
          await rm(dir, { recursive: true });
        }
      }),
      { numRuns: 60 },
    );
  });
});
