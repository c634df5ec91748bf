import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { parseCiYaml } from "../../../src/declarations/ci/ci-yaml.ts";
import { ciTexts } from "../../../src/operations/ci/ci-texts.ts";
import { cacheKey, fetchKey, type LockTexts, planCi } from "../../../src/operations/ci/plan-ci.ts";

const parsed = parseCiYaml(
  JSON.stringify({
    version: 1,
    jobs: {
      deps: { uses: "npm", trust: "base" },
      test: {
        needs: ["deps"],
        run: "x",
        matrix: { node: ["22", "24"] },
        cache: [
          { path: "a", key: ["k"] },
          { path: "b", key: ["k", "l"] },
        ],
        artifacts: "dist/*",
        reports: { junit: "r.xml" },
      },
      py: {
        services: { db: { uses: "postgres" } },
        uses: "pip",
        run: "x",
        cache: [{ path: "a", key: ["k"] }],
      },
    },
  }),
  "ci.yaml",
);
if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
const file = parsed.value;
const steps = planCi(file);

interface Run {
  readonly trusted: boolean;
  /** Contents of `package-lock.json` and of the key files, which a head chooses. */
  readonly lock: string;
  readonly key: string;
}

/** The cache as a folder with an entry for each key: who has written it, and with what in view. */
type Cache = Map<string, { readonly trusted: boolean; readonly of: string }>;

/** Does what a run could do at worst: it writes wherever its cells may. Answers with what it read. */
function ran(cache: Cache, { trusted, lock, key }: Run): readonly string[] {
  const texts: LockTexts = new Map([["package-lock.json", Buffer.from(lock)]]);
  const contents: LockTexts = new Map([
    ["k", Buffer.from(key)],
    ["l", null],
  ]);
  const fetchKeys = new Map(
    steps.flatMap((step) => (step.kind === "fetch" ? [[step.name, fetchKey(step, texts, "")]] : [])),
  );
  const cacheKeys = new Map(
    steps.flatMap((step) =>
      step.kind === "part" ? [[step.name, step.job.cache.map((one) => cacheKey(step, "i", one, contents))]] : [],
    ),
  );
  const places = { run: "/repo/.corral/ci/run-1", cache: "/repo/.corral/ci/cache", out: "/repo/out" };
  const texts2 = ciTexts(
    { file, steps, isTrusted: trusted, fetchKeys, cacheKeys, kept: new Set(cache.keys()), scripts: new Map() },
    places,
  );
  const { paths } = parse(texts2.corral).sandbox as { paths: Record<string, { root: string; mode: string }> };
  const read: string[] = [];
  for (const text of texts2.workers.values())
    for (const { name, mode = "ro" } of (parse(text.split("---\n")[1] ?? "").sandbox?.zones ?? []) as {
      name: string;
      mode?: string;
    }[]) {
      const { root, mode: most } = paths[name] ?? { root: "", mode: "" };
      if (!root.startsWith(`${places.cache}/`)) continue;
      const entry = root.slice(places.cache.length + 1);
      if (mode === "rw" && most === "rw") cache.set(entry, { trusted, of: JSON.stringify([lock, key]) });
      else read.push(entry);
    }
  return read;
}

describe("the caches of corral ci", () => {
  it("never have what a run wrote whose head is not the base, whatever runs in which order", () => {
    const content = fc.constantFrom("a", "b", "c");
    const run = fc.record({ trusted: fc.boolean(), lock: content, key: content });
    fc.assert(
      fc.property(fc.array(run, { maxLength: 6 }), (runs) => {
        const cache: Cache = new Map();
        for (const one of runs) {
          const before = new Map(cache);
          const read = ran(cache, one);
          for (const entry of read) expect(before.get(entry)?.trusted ?? true).toBe(true);
          // What is there is never written again, and a run that is not trusted writes nothing.
          for (const [key, value] of before) expect(cache.get(key)).toBe(value);
          if (!one.trusted) expect(cache.size).toBe(before.size);
        }
      }),
      { numRuns: 25 },
    );
  });

  it("are filled by a run of the base and read by another with the same contents alone", () => {
    const cache: Cache = new Map();
    ran(cache, { trusted: true, lock: "a", key: "k" });
    expect(cache.size).toBeGreaterThan(5);
    expect(ran(cache, { trusted: false, lock: "a", key: "k" }).length).toBeGreaterThan(3);
    expect(ran(cache, { trusted: false, lock: "b", key: "other" })).toEqual([]);
  });
});

describe("the plan of ci.yaml", () => {
  it("fetches once for all that need the same, and comes in an order that can run", () => {
    expect(steps.map(({ name, needs }) => [name, needs])).toEqual([
      ["deps", []],
      ["test.22", ["deps"]],
      ["test.24", ["deps"]],
      ["fetch.pip.1", []],
      ["py", ["fetch.pip.1"]],
    ]);
    expect(planCi(file, { jobs: ["test"], matrix: { node: "24" } }).map(({ name }) => name)).toEqual([
      "deps",
      "test.24",
    ]);
    expect(() => planCi(file, { jobs: ["tset"] })).toThrow("did you mean `test`?");
    expect(() => planCi(file, { matrix: { node: "8" } })).toThrow("node is one of 22, 24");
  });
});
