import { readdir, readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { breachesOf, longestChain } from "./architecture.ts";

async function ownSources(): Promise<Map<string, string>> {
  const src = new URL("../src/", import.meta.url);
  const paths = (await readdir(src, { recursive: true })).filter((path) => /\.tsx?$/.test(path));
  return new Map(
    await Promise.all(paths.map(async (path) => [path, await readFile(new URL(path, src), "utf8")] as const)),
  );
}

describe("the layers of src/", () => {
  it("are kept by every file", async () => {
    const sources = await ownSources();
    expect(sources.size).toBeGreaterThan(50);
    const told = breachesOf(sources).map(({ file, what, why }) => `src/${file} ${what}; ${why}`);
    expect(told).toEqual([]);
  });
});

describe("the check of sizes", () => {
  it("finds a file and a folder that a reader cannot hold", () => {
    const sources = new Map<string, string>([["text/long.ts", "\n".repeat(501)]]);
    for (let index = 0; index < 17; index += 1) sources.set(`json/x${index}.ts`, "");
    expect(breachesOf(sources).map(({ file, what }) => `${file} ${what}`)).toEqual([
      "text/long.ts has 501 lines",
      "json has 17 files",
    ]);
  });
});

describe("the check of names", () => {
  it("finds one that two files export, unless they implement one port", () => {
    const sources = new Map([
      ["text/a.ts", "export interface Owner {}"],
      ["json/b.ts", "export async function Owner() {}\n/* export const other = 1; */"],
      ["fleet/journal/c.ts", "export const rows = 1;"],
      ["fleet/postgres/d.ts", "export const rows = 2;\nexport type Rows = 1;\nexport const Rows = 1;"],
    ]);
    expect(breachesOf(sources).map(({ file, what }) => `${file} ${what}`)).toEqual([
      "json/b.ts exports Owner, as text/a.ts does",
    ]);
  });
});

describe("the check of scripts", () => {
  it("finds a long one, in one text or in lines, and no long text of words", () => {
    const lines = (line: string): string[] => Array.from({ length: 12 }, () => line);
    const sources = new Map([
      ["json/a.ts", `const a = \`${lines("SELECT 1;").join("\n")}\`;`],
      ["json/b.ts", `const b = ${JSON.stringify(lines("if a; then b; fi"))};`],
      ["json/c.ts", `const c = \`${lines("Select a file, and it is done.").join("\n")}\`;`],
      ["json/d.ts", "const d = `SELECT 1`;"],
    ]);
    expect(breachesOf(sources).map(({ file, what }) => `${file} ${what}`)).toEqual([
      "json/a.ts has a script of 12 lines",
      "json/b.ts has a script of 12 lines",
    ]);
  });
});

describe("the longest chain of imports", () => {
  // The service has four files between its start and an operation: the list of routes, a route, what routes use, what runs.
  it("is at most 28 files, types included", async () => {
    expect(longestChain(await ownSources()).length).toBeLessThanOrEqual(28);
  });

  it("is counted in files", () => {
    const files = { "a.ts": 'import { b } from "./b.ts";', "b.ts": 'import type { c } from "./c.ts";', "c.ts": "" };
    expect(longestChain(new Map(Object.entries(files)))).toEqual(["a.ts", "b.ts", "c.ts"]);
  });
});

/** A variable, or a queue or an empty collection that only makes sense where something is put into it. */
const STATE =
  /^(?:export )?(?:let |var |const [\w$]+ = (?:new (?:PQueue|Weak\w+|Map|Set|AsyncLocalStorage)(?:<.*>)?\((?:\)|\{ )|\[\];|\{\};))/m;

describe("modules", () => {
  it("keep no state: what is shared is passed in", async () => {
    const keeping = [...(await ownSources())].filter(([, code]) => STATE.test(code)).map(([path]) => path);
    expect(keeping).toEqual([]);
  });

  it.each([
    "let a = 1;",
    "export let a;",
    "const a = new PQueue({ concurrency: 4 });",
    "const a = new Map<string, X>();",
    "const a = [];",
  ])("are found out by `%s`", (line) => {
    expect(STATE.test(`import x;\n${line}\n`)).toBe(true);
  });
});

describe("the check of the layers", () => {
  function told(path: string, code: string, others: Record<string, string> = {}): string[] {
    return breachesOf(new Map(Object.entries({ [path]: code, ...others }))).map(({ file, what }) => `${file} ${what}`);
  }

  it.each([
    ["an import upwards", "isolation/x.ts", 'import { run } from "../run/run.ts";', "imports run/"],
    ["an import for its types alone", "sandbox/x.ts", 'import type { Run } from "../run/run.ts";', "imports run/"],
    [
      "an import over several lines",
      "sandbox/x.ts",
      'import {\n  a,\n  type B,\n} from "../run/run.ts";',
      "imports run/",
    ],
    [
      "an import of the service by its page",
      "serve/web/x.tsx",
      'import { y } from "../http/y.ts";',
      "imports serve/http/y.ts",
    ],
    ["an import of the page by the service", "serve/x.ts", 'import { y } from "./web/y.ts";', "imports serve/web/y.ts"],
    [
      "the schemas of the contract in the page",
      "serve/web/x.ts",
      'import { CONTRACT } from "../../operations/contract/table.ts";',
      "imports operations/contract/table.ts",
    ],
    [
      "the schemas of the contract in the client",
      "client/x.ts",
      'import { CONTRACT } from "../operations/contract/table.ts";',
      "imports operations/contract/table.ts",
    ],
    [
      "an operation in the client",
      "client/x.ts",
      'import type { R } from "../operations/runs.ts";',
      "imports operations/runs.ts",
    ],
    ["a route beside the table", "serve/http/x.ts", 'const path = "/v1/other";', "names the route /v1/other"],
    ["a package of Node in the page", "serve/web/x.ts", 'import { join } from "node:path";', "imports node:path"],
    ["an import for its effect", "sandbox/x.ts", 'import "../run/run.ts";', "imports run/"],
    ["an import on demand", "sandbox/x.ts", 'const x = await import("../run/run.ts");', "imports run/"],
    ["an import on demand, as a type", "sandbox/x.ts", 'type X = import("../run/run.ts").X;', "imports run/"],
    ["an import in single quotes", "sandbox/x.ts", "import { a } from '../run/run.ts';", "imports run/"],
    [
      "a sideways import within layer 1",
      "declarations/x.ts",
      'import { p } from "../files/files.ts";',
      "imports files/",
    ],
    [
      "a sideways import within layer 2",
      "tools/x.ts",
      'import { p } from "../isolation/plan.ts";',
      "imports isolation/",
    ],
    ["json/ knowing something of ours", "json/x.ts", 'import { p } from "../sandbox/mount.ts";', "imports sandbox/"],
    ["a face knowing another", "mcp/x.ts", 'import { p } from "../cli/x.ts";', "imports cli/"],
    ["run/ knowing the command line", "run/x.ts", 'import { p } from "../cli/main.ts";', "imports cli/"],
    ["the barrel knowing the command line", "index.ts", 'export { p } from "./cli/main.ts";', "imports cli/"],
    ["the library knowing the command line", "library/x.ts", 'import { p } from "../cli/main.ts";', "imports cli/"],
    ["a lower layer knowing the library", "fleet/x.ts", 'import { p } from "../library/x.ts";', "imports library/"],
    ["the library reading the environment", "library/x.ts", "const home = process.env.HOME;", "uses process.env"],
    ["a folder without a place", "extras/x.ts", "", "is in no layer (extras)"],
    ["a way out of src/", "cli/x.ts", 'import { t } from "../../test/x.ts";', "imports ../test/x.ts"],
    ["I/O in the algebra", "sandbox/x.ts", 'import { join } from "node:path";', "imports node:path"],
    ["a package in the algebra", "sandbox/x.ts", 'import { z } from "zod";', "imports zod"],
    ["the Engine's client elsewhere", "run/x.ts", 'import type Docker from "dockerode";', "imports dockerode"],
    ["the Engine's client beside its folder", "isolation/x.ts", 'import D from "dockerode";', "imports dockerode"],
    [
      "a driver above its port",
      "run/x.ts",
      'import type { A } from "../isolation/engine/open.ts";',
      "imports isolation/engine/open.ts",
    ],
    [
      "a driver beside its folder, on demand",
      "isolation/gate/x.ts",
      'await import("../engine/open.ts");',
      "imports isolation/engine/open.ts",
    ],
    ["files elsewhere", "run/x.ts", 'import { readFile } from "node:fs/promises";', "imports node:fs/promises"],
    ["files elsewhere, by the old name", "fleet/pool.ts", 'import fs from "fs";', "imports fs"],
    ["the environment", "isolation/x.ts", "const home = process.env.HOME;", "uses process.env"],
    ["the environment, by a detour", "run/x.ts", 'const home = process["env"];', 'uses process["env'],
    ["standard output", "run/x.ts", 'process.stdout.write("x");', "uses process.stdout"],
    ["standard output, as a console", "run/x.ts", 'console.log("x");', "uses console."],
    ["an exit code", "run/x.ts", "process.exitCode = 1;", "uses process.exitCode"],
    ["the process as an import", "run/x.ts", 'import { env } from "node:process";', "uses node:process"],
    [
      "all of node:http",
      "run/x.ts",
      'import { type Server, createServer } from "node:http";',
      "imports values of node:http",
    ],
    [
      "a built-in module that is not imported",
      "run/x.ts",
      'process.getBuiltinModule("node:fs");',
      "imports by getBuiltinModule",
    ],
    ["a second barrel", "run/x.ts", 'export * from "./run.ts";', "exports ./run.ts of another file"],
    ["a second barrel of types", "run/x.ts", 'export type { A } from "./run.ts";', "exports ./run.ts of another file"],
    [
      "a second barrel in two steps",
      "run/x.ts",
      'import type { A } from "./run.ts";\nexport type { A };',
      "exports A of another file",
    ],
    ["a second index", "run/index.ts", "", "is called index.ts"],
    ["a file of odds and ends", "run/utils.ts", "", "is called utils"],
    ["a file of odds and ends in a longer name", "run/path-helpers.ts", "", "is called helpers"],
    ["a folder of odds and ends", "run/common/x.ts", "", "is called common"],
    ["an import that cannot be read", "run/x.ts", "await import(name);", "imports by import(name)"],
    ["a flag as a number", "run/x.ts", "await open(path, 0o400000);", "has the flag 0o400000"],
    ["a require", "run/x.ts", 'const d = require("dockerode");', "imports by require("],
  ])("finds %s", (_, path, code, what) => {
    expect(told(path, code)).toContain(`${path} ${what}`);
    expect(told(path, code)).toHaveLength(1);
  });

  it("finds a cycle, and shows the way around it", () => {
    const others = {
      "run/b.ts": 'import type { C } from "./c.ts";',
      "run/c.ts": 'import { a } from "./a.ts";',
    };
    expect(told("run/a.ts", 'import { b } from "./b.ts";', others)).toEqual([
      "run/a.ts imports itself: run/a.ts > run/b.ts > run/c.ts > run/a.ts",
    ]);
  });

  it.each([
    [
      "two sub-folders that",
      { "run/a/x.ts": 'import { y } from "../b/y.ts";', "run/b/z.ts": 'import type { w } from "../a/w.ts";' },
      "run/a/x.ts makes run/ a knot: a > b > a (see run/b/z.ts)",
    ],
    [
      "a folder's own files and a sub-folder that",
      { "run/x.ts": 'import { y } from "./b/y.ts";', "run/b/z.ts": 'import type { w } from "../w.ts";' },
      "run/x.ts makes run/ a knot: . > b > . (see run/b/z.ts)",
    ],
    [
      "three sub-folders, no two of which",
      {
        "run/a/x.ts": 'import { y } from "../b/y.ts";',
        "run/b/z.ts": 'import type { w } from "../c/w.ts";',
        "run/c/v.ts": 'const u = await import("../a/u.ts");',
      },
      "run/a/x.ts makes run/ a knot: a > b > c > a (see run/b/z.ts, run/c/v.ts)",
    ],
  ])("finds %s import each other", (_, files, knot) => {
    const breaches = breachesOf(new Map(Object.entries(files)));
    expect(breaches.map(({ file, what }) => `${file} ${what}`)).toEqual([knot]);
  });

  it("finds every breach of a file, each with its reason", () => {
    const code = 'import D from "dockerode";\nimport fs from "node:fs";\nprocess.exit(1);\n';
    const breaches = breachesOf(new Map([["agent/x.ts", code]]));
    expect(breaches.map(({ what }) => what)).toEqual(["imports dockerode", "imports node:fs", "uses process.exit"]);
    for (const { why } of breaches) expect(why.length).toBeGreaterThan(20);
  });

  it.each([
    [
      "what a comment names",
      "run/x.ts",
      '// console.log(process.env)\n/* import x from "dockerode"; */\nexport const a = 1;',
    ],
    ["an attribute of OpenTelemetry", "run/x.ts", 'span.setAttribute("process.exit.code", 1);'],
    ["what a string says", "run/x.ts", 'const text = "see https://example.org // no comment";\nconst b = "it\'s";'],
    [
      "the types of the contract, and its routes, in the page",
      "serve/web/x.ts",
      'import { ServiceClient } from "../../client/client.ts";\nimport type { AnswerOf } from "../../operations/contract/table.ts";',
    ],
    ["its own names, exported in a list", "run/x.ts", "const a = 1;\nexport { a };"],
    ["the barrel naming the library", "index.ts", 'export { o } from "./library/opened-project.ts";'],
    ["imports downwards", "run/x.ts", 'import { derive } from "../sandbox/derive.ts";'],
    [
      "imports within a folder",
      "isolation/engine/x.ts",
      'import { plan } from "../plan.ts";\nimport D from "dockerode";',
    ],
    [
      "the command line starting another face",
      "cli/x.ts",
      'import { c } from "../mcp/x.ts";\nprocess.stdout.write("x");',
    ],
    ["files where a reason is written down", "run/cell/broker.ts", 'import { rm } from "node:fs/promises";'],
    ["what a process knows of itself", "run/x.ts", "const uid = process.getuid?.();\nprocess.environment;"],
  ])("leaves alone %s", (_, path, code) => {
    expect(told(path, code)).toEqual([]);
  });
});
