import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { removeUnusedEnvironments } from "../../../src/operations/images.ts";
import { explain } from "../../../src/run/explain/explain.ts";
import { openPreview } from "../../../src/run/open/preview.ts";
import { storedEnvironments } from "../../../src/state/stored-environments.ts";
import { type RegistryServer, registryServer } from "../packages/registry-server.ts";
import { type ProjectFixture, python, sh } from "../project-fixture.ts";
import { ADDRESSES, npmFiles, packageProject, settingsFor } from "./package-project.ts";

/* Packages that are prepared for workers, in real cells, from a registry of the tests. */

let server: RegistryServer;
const opened: ProjectFixture[] = [];
beforeAll(async () => {
  server = await registryServer({
    manifest: { main: "index.js", exports: "./index.js", bin: { demo: "index.js" } },
    files: { "index.js": "#!/usr/bin/env node\nmodule.exports = 'hello from npm'; console.log('ran');\n" },
  });
});
afterAll(async () => {
  for (const project of opened) await project[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

async function open(worker: Record<string, unknown>, files: Record<string, string>): Promise<ProjectFixture> {
  const project = await packageProject(server, worker, files);
  opened.push(project);
  return project;
}

const PRINTS = python("import demo, sys; print(demo.word, sys.prefix)");
const pip = (command = PRINTS) => ({
  image: "corral/python",
  environment: { pip: "requirements.txt", addresses: ADDRESSES },
  command,
});
const hashed = () => `demo==1.0 --hash=sha256:${server.wheelDigest}\n`;

async function leftIn({ stateDir }: ProjectFixture): Promise<string[]> {
  return (await readdir(join(stateDir, "environments")).catch(() => [])).filter((name) => !name.endsWith(".lock"));
}

/** To prepare packages takes seconds of a processor: what is asked of prepared ones is asked of the same. */
describe("packages of pip that are prepared", () => {
  const changes =
    "touch /env/python/x; rm -f /env/python/bin/python; chmod 777 /env/python; id -u; stat -c %A /env/python";
  const prints = 'python3 -c "import demo, sys; print(demo.word, sys.prefix)"';
  let project: ProjectFixture;

  beforeAll(async () => {
    project = await open(pip(sh(`${prints}; ${changes}`)), { "requirements.txt": hashed() });
  });

  it("are so once for all runs at once, and shown read-only to cells without a network, which cannot change them", async () => {
    const before = server.requests.length;
    const results = await Promise.all([project.run("w"), project.run("w"), project.run("w")]);
    for (const result of results) {
      const stdout = "hello from a wheel /env/python\n65532\ndrwxr-xr-x\n";
      expect(result, JSON.stringify(result.error)).toMatchObject({ stdout });
      expect(result.stderr.match(/Read-only file system/g)).toHaveLength(3);
    }
    expect(server.requests.slice(before).sort()).toEqual([
      "GET /base/packages/demo-1.0-py3-none-any.whl",
      "GET /base/simple/demo/",
    ]);
    const plan = project.planOf("w");
    expect(plan.network).toBe("none");
    const [stored] = await storedEnvironments(project.stateDir);
    expect(plan.environments).toEqual([{ kind: "pip", digest: stored?.digest }]);
    expect(plan.mounts.find(({ path }) => path === "/env/python")).toMatchObject({ mode: "ro", origin: "corral" });
    expect(plan.env).toMatchObject({ VIRTUAL_ENV: "/env/python", PATH: expect.stringMatching(/^\/env\/python\/bin:/) });
    expect(await leftIn(project)).toEqual([stored?.digest]);
    expect(await project.traces()).toEqual([]);
  });

  it("are the same for the same contents", async () => {
    const preview = await openPreview(project.corral.project, {
      stateDir: project.stateDir,
      engineEnv: settingsFor(server),
    });
    const worker = project.corral.project.workers.get("w");
    if (worker === undefined) throw new Error("the fixture has no worker");
    const { tree } = await explain(worker, null, preview);
    expect(tree.plan?.environments).toEqual(project.planOf("w").environments);
  });

  it("are removed only if no process uses them", async () => {
    const { stateDir } = project;
    const [stored] = await storedEnvironments(stateDir);
    expect(stored).toMatchObject({ kind: "pip", name: "pip:requirements.txt" });
    expect(stored?.sizeBytes).toBeGreaterThan(1000);
    const later = { unusedMs: 1000, now: Date.now() + 60_000 };
    expect(await removeUnusedEnvironments({ stateDir }, later)).toEqual([]);
    await project.corral[Symbol.asyncDispose]();
    await mkdir(join(stateDir, "environments", `${"a".repeat(64)}.new`));
    expect(await removeUnusedEnvironments({ stateDir }, { unusedMs: 3_600_000 })).toEqual([]);
    expect(await leftIn(project)).toEqual([stored?.digest]);
    expect(await removeUnusedEnvironments({ stateDir }, later)).toEqual([stored]);
    expect(await leftIn(project)).toEqual([]);
  });
});

describe("packages of pip", () => {
  it("that cannot be fetched refuse the run, with the last lines of pip, and leave nothing", async () => {
    const project = await open(pip(), { "requirements.txt": "nothing-of-that-name\n" });
    const result = await project.run("w");
    expect(result.violations).toMatchObject([
      {
        code: "IMAGE_NOT_MADE",
        image: "pip:requirements.txt",
        reason: expect.stringMatching(
          /^the preparation failed: exit status 1: ERROR: No matching distribution found for nothing-of-that-name$/,
        ),
        get: "corral images build pip:requirements.txt",
      },
    ]);
    const told = project.events.flatMap((event) => (event.type === "image" ? [event.progress.text] : []));
    expect(told.at(-1)).toContain("No matching distribution found for nothing-of-that-name");
    expect(await leftIn(project)).toEqual([]);
    expect(await project.traces()).toEqual([]);
  });

  it("from an index at an address that nobody named refuse the run with the option to name it", async () => {
    const project = await open(
      { ...pip(), environment: { pip: "requirements.txt" } },
      { "requirements.txt": "demo\n" },
    );
    const { violations } = await project.run("w");
    expect(violations).toMatchObject([
      { reason: expect.stringMatching(/ leads to an address that is not public\. .*`--addresses`\. `getent hosts /) },
    ]);
  });

  it("leave nothing if the run is cancelled meanwhile; without hashes they are then any that the index has", async () => {
    const project = await open({ ...pip(), environment: { pip: ["demo"], addresses: ADDRESSES } }, {});
    const stop = new AbortController();
    const running = project.run("w", { signal: stop.signal });
    while (!project.events.some(({ type, worker }) => type === "started" && worker.startsWith("pip:")))
      await new Promise((resolve) => setTimeout(resolve, 10));
    stop.abort(new Error("enough"));
    expect(await running).toMatchObject({ status: "cancelled" });
    expect(await leftIn(project)).toEqual([]);
    expect(await project.traces()).toEqual([]);
    expect(await project.run("w")).toMatchObject({ status: "succeeded" });
  });

  it("that are hidden by a mount of the worker refuse the run", async () => {
    const project = await packageProject(
      server,
      { ...pip(), sandbox: { zones: [{ name: "env" }] } },
      { "requirements.txt": hashed() },
      { env: "ro" },
    );
    opened.push(project);
    expect((await project.run("w")).violations).toMatchObject([
      { code: "MOUNT_RESERVED", path: "/env", because: "environment" },
    ]);
  });
});

describe("packages of npm", () => {
  const npm = (command: string[]) => ({
    image: "corral/node",
    environment: { npm: "app/package-lock.json", addresses: ADDRESSES },
    command,
  });

  it("are found by require, import and as programs", async () => {
    const script = `cd /tmp; node -p "require('@acme/demo')"; node --input-type=module -e "import word from '@acme/demo'; console.log(word)"; demo`;
    const project = await open(npm(sh(script)), npmFiles(server));
    const result = await project.run("w");
    expect(result.stdout, JSON.stringify(result.error)).toBe("ran\nhello from npm\nran\nhello from npm\nran\n");
    const paths = project.planOf("w").mounts.map(({ path, mode }) => `${path} ${mode}`);
    expect(paths).toEqual(expect.arrayContaining(["/env/node ro", "/node_modules ro"]));
  });

  it("may be a list of names, for which npm looks", async () => {
    const environment = { npm: ["@acme/demo@^1.0.0"], addresses: ADDRESSES };
    const project = await open({ ...npm(sh(`node -p "require('@acme/demo')"`)), environment }, {});
    const result = await project.run("w");
    expect(result.stdout, JSON.stringify(result.error)).toBe("ran\nhello from npm\n");
    expect(await storedEnvironments(project.stateDir)).toMatchObject([{ name: "npm:@acme/demo@^1.0.0" }]);
  });

  it("with other contents than the lock file says are not installed", async () => {
    const other = await registryServer({ files: { "index.js": "other" } });
    const files = npmFiles({ integrity: server.integrity });
    const project = await packageProject(other, npm(["true"]), files);
    opened.push(project);
    expect((await project.run("w")).violations).toMatchObject([{ code: "IMAGE_NOT_MADE" }]);
    expect(await leftIn(project)).toEqual([]);
    await other[Symbol.asyncDispose]();
  });
});
