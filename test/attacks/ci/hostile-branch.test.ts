import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { templateFiles } from "../../../src/declarations/place/package-root.ts";
import { CI_FOLDER } from "../../../src/operations/ci/ci-texts.ts";
import { fetchKey, planCi } from "../../../src/operations/ci/plan-ci.ts";
import { checkedCi } from "../../../src/operations/ci/run-ci.ts";
import { type BranchJob, branchJob, type Step } from "./branch-job.ts";

/* A stranger's branch against `corral ci run`, in real cells. Packages need no registry here: there are none, or one in the cache. */

let job: BranchJob;
/** Where a program of the branch that runs on the host leaves its mark. */
let canary: string;

beforeAll(async () => {
  job = await branchJob();
  canary = await mkdtemp(join(tmpdir(), "corral-ci-canary-"));
});
afterAll(async () => {
  await job[Symbol.asyncDispose]();
  await rm(canary, { recursive: true, force: true });
});
beforeEach(async () => {
  await job.checkOut();
});

const FETCH = 'git fetch --quiet --depth=1 --no-tags origin "$HEAD"';
const RUN = 'corral ci run --head "$HEAD"';

const steps = async (HEAD: string, scripts: readonly string[], env = {}): Promise<Step> =>
  await job.step(scripts.join("\n"), { HEAD, ...env });
const REPORTS = "ci-results/test/reports/reports";
const reports = async (): Promise<string[]> =>
  (await readdir(join(job.dir, REPORTS))).filter((name) => !name.startsWith(".")).sort();
const reportOf = async (name: string): Promise<string> => await readFile(join(job.dir, REPORTS, name), "utf8");
const CACHE = ".corral/ci/cache";
const cached = async (): Promise<string[]> => await readdir(join(job.dir, CACHE)).catch(() => []);
const passes = (more: string): string =>
  `import fs from "node:fs";\nimport { execFileSync } from "node:child_process";\nimport { test } from "node:test";\ntest("passes", () => {});\n${more}\n`;

describe("programs that a branch plants", () => {
  let listener: Server;
  const heard: string[] = [];

  beforeAll(async () => {
    listener = createServer((request, response) => {
      heard.push(String(request.url));
      response.end("ok");
    });
    await new Promise<void>((resolve) => listener.listen(0, "0.0.0.0", resolve));
  });
  afterAll(() => new Promise((resolve) => listener.close(resolve)));

  it("run in the cell of the tests alone: no hook, filter, install script or configuration of the branch counts outside", async () => {
    const { port } = listener.address() as AddressInfo;
    const addresses = Object.values(networkInterfaces()).flatMap((all) => all?.map(({ address }) => address) ?? []);
    const places = [
      "127.0.0.1",
      "172.17.0.1",
      "host.docker.internal",
      ...addresses.filter((one) => !one.includes(":")),
    ];
    const mark = (name: string): string => join(canary, name);
    const evil = `
      import fs from "node:fs";
      const seen = { environment: Object.keys(process.env), reached: [], wrote: [], git: fs.existsSync(".git") };
      for (const place of ${JSON.stringify(places)}) {
        await fetch("http://" + place + ":${port}/" + place, { signal: AbortSignal.timeout(2000) })
          .then(() => seen.reached.push(place), () => {});
      }
      for (const path of ${JSON.stringify([mark("script"), "/packages-0/poison.tar", "/attachments/tree.tar", "/etc/passwd"])}) {
        try { fs.appendFileSync(path, "x"); seen.wrote.push(path); } catch {}
      }
      fs.mkdirSync("reports", { recursive: true });
      fs.writeFileSync("reports/seen.json", JSON.stringify(seen));
    `;
    const program = (name: string): string => `touch ${mark(name)}`;
    const head = await job.branch({
      "package.json": JSON.stringify({
        name: "p",
        version: "1.0.0",
        type: "module",
        scripts: { prepare: "node evil.mjs" },
      }),
      "evil.mjs": evil,
      "p.test.js": passes(""),
      ".gitattributes": "* filter=evil diff=evil\np.test.js export-ignore\n",
      ".husky/post-checkout": `#!/bin/sh\n${program("husky")}\n`,
      ".gitconfig": `[core]\n\tfsmonitor = ${program("fsmonitor")}\n`,
      ".gitmodules": `[submodule "x"]\n\tpath = x\n\turl = -u${program("submodule")}\n`,
      ".lfsconfig": "[lfs]\n\turl = http://127.0.0.1/\n",
      ".npmrc": `ignore-scripts=false\nregistry=http://127.0.0.1:${port}/\n`,
      "ci.yaml": JSON.stringify({ version: 1, jobs: { test: { run: "echo replaced" } } }),
      "corral.yaml": "version: 1\nsandbox: { root: . , network: true }\n",
      "workers/test.worker":
        "---\ncommand: [sh, -c, 'echo replaced']\nsandbox: { inherit: true, network: true }\n---\n",
      "ci-results": "link:/etc",
      out: "link:/",
    });
    // The filter is one that the machine has, as that of git-lfs; the branch only names it.
    const filter = `git config --global filter.evil.smudge 'touch ${mark("filter")}; cat'; git config --global diff.evil.textconv 'touch ${mark("textconv")}; cat'`;
    const ran = await steps(head, [filter, FETCH, RUN], { DEPLOY_TOKEN: "secret-of-the-runner" });
    expect(ran.status, ran.stderr).toBe(0);
    expect(ran.stdout).toMatch(/pass 1\b/);
    expect(ran.stdout).not.toContain("replaced");

    const seen = JSON.parse(await reportOf("seen.json"));
    expect(seen).toMatchObject({ reached: [], wrote: [], git: false });
    expect(seen.environment).not.toContain("DEPLOY_TOKEN");
    expect(await readdir(canary)).toEqual([]);
    expect(heard).toEqual([]);
    expect(await cached()).toEqual([]);

    // A checkout as others make it runs the filter: this test would see it.
    await job.step(
      `${filter}; git checkout --quiet --force "$HEAD" -- evil.mjs .gitattributes; rm evil.mjs; git checkout evil.mjs`,
      { HEAD: head },
    );
    expect(await readdir(canary)).toContain("filter");
    expect(await (await fetch(`http://127.0.0.1:${port}/control`)).text()).toBe("ok");
  });

  it("are refused as a tree that has a .git of its own", async () => {
    const git = (args: string[], input?: string): string =>
      execFileSync("git", args, { cwd: job.origin, ...(input === undefined ? {} : { input }), env: IDENTITY })
        .toString()
        .trim();
    const hook = git(["hash-object", "-w", "--stdin"], "#!/bin/sh\n");
    const hooks = git(["mktree"], `100755 blob ${hook}\tpost-checkout\n`);
    const own = git(["mktree"], `040000 tree ${hooks}\thooks\n`);
    const files = git(["ls-tree", "main"]);
    const head = git(["commit-tree", "-m", "x", git(["mktree"], `${files}\n040000 tree ${own}\t.git\n`)]);
    git(["update-ref", "refs/pull/8/head", head]);
    const ran = await steps(head, [FETCH, RUN]);
    expect(ran.status).toBe(2);
    expect(ran.stderr).toContain("inside of git's own directory");
  });
});

describe("reports that a branch forges", () => {
  it("do not change the exit status of tests that fail", async () => {
    const forged = '<testsuites tests="1" failures="0"><testcase name="all is well"/></testsuites>';
    const head = await job.branch({
      "p.test.js": `import fs from "node:fs";\nimport { test } from "node:test";\ntest("fails", () => { throw new Error("x"); });
        process.on("exit", () => fs.writeFileSync("reports/forged.xml", ${JSON.stringify(forged)}));`,
    });
    const ran = await steps(head, [FETCH, RUN]);
    expect(ran.status, ran.stderr).toBe(1);
    expect(await reports()).toEqual(["forged.xml", "junit.xml"]);
    expect(await reportOf("junit.xml")).toContain("<failure");
  });

  it("stay out if they are links, other files or too large, and a run that succeeded is then refused", async () => {
    const head = await job.branch({
      "p.test.js": passes(`
        fs.symlinkSync("/etc/passwd", "reports/link.xml");
        fs.symlinkSync("../ci.yaml", "reports/config.json");
        fs.linkSync("reports/junit.xml", "reports/same.xml");
        fs.writeFileSync("reports/run.sh", "x");
        fs.writeFileSync("reports/.gitattributes", "* filter=evil");
        fs.writeFileSync("reports/large.xml", Buffer.alloc(9 * 2 ** 20));
        execFileSync("mkfifo", ["reports/fifo.xml"]);
        fs.mkdirSync("reports/sub/.git/hooks", { recursive: true });
        fs.writeFileSync("reports/sub/.git/hooks/x.xml", "x");
        const entity = (n) => '<!ENTITY e' + n + ' "' + ('&e' + (n - 1) + ';').repeat(10) + '">';
        const bomb = [...Array(12).keys()].slice(1).map(entity).join("");
        fs.writeFileSync("reports/bomb.xml", '<!DOCTYPE x [<!ENTITY e0 "x">' + bomb + ']><x>&e11;</x>');
      `),
    });
    const ran = await steps(head, [FETCH, RUN]);
    expect(ran.status, ran.stderr).toBe(126);
    for (const name of await reports()) {
      if (name === "sub") continue;
      expect(["bomb.xml", "junit.xml", "same.xml"]).toContain(name);
      expect((await lstat(join(job.dir, REPORTS, name))).isFile()).toBe(true);
    }
    expect(await reports()).toContain("bomb.xml");
    expect(existsSync(join(job.dir, REPORTS, "sub/.git/hooks/x.xml"))).toBe(false);
  });
});

describe("a lock file of a branch", () => {
  const lockOf = (resolved: string): string =>
    JSON.stringify(
      {
        name: "p",
        version: "1.0.0",
        lockfileVersion: 3,
        packages: {
          "": { name: "p", version: "1.0.0", dependencies: { x: "1.0.0" } },
          "node_modules/x": { version: "1.0.0", resolved, integrity: `sha512-${"A".repeat(86)}==` },
        },
      },
      null,
      1,
    );

  it.each([
    ["another host", { "package-lock.json": lockOf("https://evil.example/x.tgz") }],
    ["this machine", { "package-lock.json": lockOf("http://127.0.0.1:80/x.tgz") }],
    [
      "a repository",
      { "package-lock.json": lockOf("git+ssh://git@evil.example/x.git#0123456789012345678901234567890123456789") },
    ],
    ["a file through a link", { "package-lock.json": "link:/etc/passwd" }],
  ])("that names %s is refused with its place, before anything is fetched", async (_, files) => {
    const ran = await steps(await job.branch(files), [FETCH, RUN]);
    expect(ran.status).not.toBe(0);
    expect(ran.stderr).toMatch(/package-lock\.json/);
    expect(ran.stderr).not.toContain("root:");
    expect(await cached()).toEqual([]);
  });
});

describe("a cache with packages", () => {
  /** The archive of npm's cache with one package, which prints `text`. */
  async function packed(text: string): Promise<{ dir: string; integrity: string; tarball: string }> {
    const dir = await mkdtemp(join(canary, "cache-"));
    await mkdir(join(dir, "package"));
    await writeFile(join(dir, "package/package.json"), '{"name":"x","version":"1.0.0","type":"module"}');
    await writeFile(join(dir, "package/index.js"), `console.log(${JSON.stringify(text)});\n`);
    const tarball = join(dir, "x.tgz");
    execFileSync("tar", ["-czf", tarball, "-C", dir, "package"]);
    const integrity = `sha512-${createHash("sha512")
      .update(await readFile(tarball))
      .digest("base64")}`;
    return { dir, integrity, tarball };
  }

  it("is used for the lock file with that digest, and refused by npm if its content was changed", async () => {
    const [good, bad] = [await packed("the real one"), await packed("the poisoned one")];
    execFileSync("npm", ["cache", "add", good.tarball, "--cache", join(good.dir, "npm")], { stdio: "pipe" });
    const lock = JSON.stringify({
      name: "p",
      version: "1.0.0",
      lockfileVersion: 3,
      packages: {
        "": { name: "p", version: "1.0.0", dependencies: { x: "1.0.0" } },
        "node_modules/x": {
          version: "1.0.0",
          resolved: "https://registry.npmjs.org/x/-/x-1.0.0.tgz",
          integrity: good.integrity,
        },
      },
    });
    const manifest = JSON.stringify({ name: "p", version: "1.0.0", type: "module", dependencies: { x: "1.0.0" } });
    const head = await job.branch({
      "package.json": manifest,
      "package-lock.json": lock,
      "p.test.js": passes('await import("x");'),
    });
    const file = await checkedCi(await readFile(join(job.dir, "ci.yaml"), "utf8"), "ci.yaml", async () => null);
    const [step] = planCi(file);
    if (step?.kind !== "fetch") throw new Error("the first step fetches no packages");
    const texts = new Map([
      ["package.json", Buffer.from(manifest)],
      ["package-lock.json", Buffer.from(lock)],
    ]);
    const key = fetchKey(step, texts, (await templateFiles(CI_FOLDER)).get("fetch.sh") ?? "");
    const archive = join(job.dir, CACHE, key, "packages.tar");
    const fill = async (): Promise<void> => {
      await mkdir(join(job.dir, CACHE, key), { recursive: true });
      await writeFile(join(good.dir, "registry"), "https://registry.npmjs.org/\n");
      execFileSync("tar", ["-cf", archive, "-C", good.dir, "npm", "registry"]);
    };
    await fill();
    const real = await steps(head, [FETCH, RUN]);
    expect(real.stdout, real.stderr).toContain("the real one");
    expect(real.status).toBe(0);

    const digest = Buffer.from(good.integrity.slice("sha512-".length), "base64").toString("hex");
    const content = join(
      good.dir,
      "npm/_cacache/content-v2/sha512",
      digest.slice(0, 2),
      digest.slice(2, 4),
      digest.slice(4),
    );
    await writeFile(content, await readFile(bad.tarball));
    await fill();
    const poisoned = await steps(head, [RUN]);
    expect(poisoned.status).not.toBe(0);
    expect(poisoned.stdout + poisoned.stderr).toMatch(/EINTEGRITY|ENOTCACHED/);
    expect(poisoned.stdout).not.toContain("the poisoned one");
  });
});

const IDENTITY = {
  PATH: process.env.PATH,
  GIT_AUTHOR_NAME: "A",
  GIT_AUTHOR_EMAIL: "a@example.org",
  GIT_COMMITTER_NAME: "A",
  GIT_COMMITTER_EMAIL: "a@example.org",
};
