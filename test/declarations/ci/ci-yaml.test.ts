import { describe, expect, it } from "vitest";
import { parseCiYaml, partsOf } from "../../../src/declarations/ci/ci-yaml.ts";

const read = (jobs: unknown, more: object = {}) =>
  parseCiYaml(JSON.stringify({ version: 1, ...more, jobs }, null, 1), "ci.yaml");
const messages = (jobs: unknown): string[] => {
  const parsed = read(jobs);
  return parsed.ok ? [] : parsed.problems.map(({ path, message }) => `${path}: ${message}`);
};
const wide = Array.from({ length: 9 }, (_, index) => `v${index}`);

describe("ci.yaml", () => {
  it("has jobs with what they need, and a run for each combination of a matrix", () => {
    const parsed = read({
      deps: { uses: "npm", trust: "base" },
      test: { needs: ["deps"], run: ["npm test", "true"], matrix: { node: ["22", "24"], db: ["a", "b"] } },
    });
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
    const test = parsed.value.jobs.get("test");
    expect(test).toMatchObject({ run: "npm test\ntrue", dir: "", trust: "head", lock: "head" });
    expect(test && partsOf(test)).toEqual([
      { node: "22", db: "a" },
      { node: "22", db: "b" },
      { node: "24", db: "a" },
      { node: "24", db: "b" },
    ]);
  });

  it.each([
    ["no job", {}, ["jobs: must name at least one job"]],
    [
      "a need that is not there",
      { test: { run: "x", needs: ["tset"] }, other: { run: "x" } },
      ["jobs.test.needs.0: there is no job `tset`, did you mean `test`?"],
    ],
    [
      "services that are none",
      {
        a: {
          run: "x",
          services: {
            db: {},
            UP: { uses: "redis" },
            c: { uses: "redis", run: "y" },
            d: { run: "y" },
            e: { uses: "sql" },
          },
        },
        deps: { uses: "npm", trust: "base", services: { db: { uses: "postgres" } } },
      },
      [
        "jobs.a.services.db: needs `uses`, or an `image`, or `run`",
        "jobs.a.services.db.ports: must name at least one port",
        "jobs.a.services.UP: must be 1 to 63 small letters, digits or `-`, begin with a letter, and not end with `-`",
        "jobs.a.services.c.uses: is packaged: leave out `image`, `environment` and `run`, or `uses`",
        "jobs.a.services.d.ports: must name at least one port",
        `jobs.a.services.e.uses: must be "postgres" or "redis", not "sql"`,
      ],
    ],
    [
      "two services at one port",
      { a: { run: "x", services: { b: { uses: "postgres" }, c: { run: "y", ports: [5432] } } } },
      ["jobs.a.services.c.ports.0: 5432 is a port of another service, or listed twice; give this one another port"],
    ],
    [
      "services of a job that runs nothing",
      { a: { uses: "npm", trust: "base", services: { b: { uses: "redis" } } } },
      ["jobs.a.services: belongs to a job with `run`"],
    ],
    [
      "a circle",
      { a: { run: "x", needs: ["b"] }, b: { run: "x", needs: ["c"] }, c: { run: "x", needs: ["b"] } },
      ["jobs.a.needs: leads in a circle: a, b, c wait for each other"],
    ],
    [
      "a job that needs itself",
      { a: { run: "x", needs: ["a"] } },
      ["jobs.a.needs: leads in a circle: a wait for each other"],
    ],
    [
      "nothing to do",
      { a: {} },
      [
        "jobs.a: needs `run`, a command; or `uses` with `trust: base`, to fetch; or `worker`",
        "jobs.a: only fetches packages: write `trust: base`, since it runs nothing of the head; or write `run`",
      ],
    ],
    [
      "a command that the base is trusted with",
      { a: { run: "x", trust: "base" } },
      ["jobs.a.trust: can only be `base` without `run`: a command runs what the head has"],
    ],
    [
      "trust behind the head",
      { a: { run: "x" }, b: { uses: "npm", trust: "base", needs: ["a"] } },
      ["jobs.b.needs.0: `a` runs the head's code, and this job is of `trust: base`"],
    ],
    ["an image of no axis", { a: { run: "x", image: "node:{n}" } }, ["jobs.a.image: `{n}` is no axis of the matrix"]],
    [
      "a worker that fetches with what it does not need, and without what it needs",
      {
        a: { worker: "w", trust: "base" },
        b: { worker: "w", run: "x", lock_files: ["l"] },
        c: { worker: "w", uses: "npm", trust: "base", lock_files: ["l"] },
      },
      [
        "jobs.a: needs `lock_files`: the files that its worker gets, and by whose contents its packages are kept",
        "jobs.b.lock_files: belongs to a job with `worker` and `trust: base`",
        "jobs.c.worker: fetches in place of `uses`; leave one of them out",
      ],
    ],
    [
      "a worker that is a path, and a tool that has none",
      { a: { worker: "../w", run: "x" }, b: { uses: "apt", run: "x" } },
      [
        "jobs.a.worker: must be 1 to 64 letters, digits, `.`, `_` or `-`, and not begin with a dot",
        "jobs.b.uses: has no packaged worker for apt, which has no lock file: name packages of Debian in `environment: { apt: [NAME] }`",
      ],
    ],
    [
      "a matrix bomb",
      { a: { run: "x", matrix: { a: wide, b: wide, c: wide } } },
      ["jobs.a.matrix: makes 729 runs; at most 64 are allowed"],
    ],
    [
      "many matrices",
      Object.fromEntries(
        ["a", "b", "c", "d", "e"].map((name) => [name, { run: "x", matrix: { a: wide.slice(1), b: wide.slice(1) } }]),
      ),
      ["jobs.e.matrix: is one too many: all jobs together may have at most 256 runs"],
    ],
    ["a value twice", { a: { run: "x", matrix: { a: ["1", "1"] } } }, ["jobs.a.matrix.a: names a value twice"]],
    [
      "a value that is no text",
      { a: { run: "x", matrix: { a: [1] } } },
      ['jobs.a.matrix.a.0: must be a text, not 1; write it in quotes: "1"'],
    ],
    [
      "packages of the work tree",
      { a: { run: "x", environment: { pip: "requirements.txt" } } },
      ["jobs.a.environment: must have lists of packages; what a lock file of the repository names comes with `uses`"],
    ],
  ])("is refused with %s, at its place", (_, jobs, expected) => {
    expect(messages(jobs)).toEqual(expected);
  });

  it.each(["../x", "/etc/passwd", "a b", "$(x)", "a;b", "-x/..", "a//b", ".", "a\nb", "x'"])(
    "has no path or pattern %j that leads out or that a shell could read",
    (path) => {
      for (const more of [
        { artifacts: [path] },
        { reports: { junit: path } },
        { dir: path },
        { cache: [{ path, key: ["a"] }] },
        { cache: [{ path: "a", key: [path] }] },
      ])
        expect(messages({ a: { run: "x", ...more } }), JSON.stringify(more)).not.toEqual([]);
    },
  );
});
