import { lstat, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { makeZoneFolders } from "../../src/declarations/place/zone-folder.ts";
import { loadDeclaredProject, loadProject } from "../../src/declarations/project.ts";
import { parseWorker } from "../../src/declarations/worker/worker.ts";

let base: string;
let dir: string;

beforeEach(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), "corral-create-")));
  dir = join(base, "p");
  await mkdir(dir);
});
afterEach(() => rm(base, { recursive: true }));

const yaml = (root: string) => `version: 1\nsandbox: { paths: { out: { root: "${root}", mode: rw, create: true } } }\n`;
const load = async (root: string) => await loadDeclaredProject(dir, { corral: yaml(root), workers: new Map() });

it("takes `false` for what is off anyway, in a project as in a worker, and no other word", async () => {
  const corral =
    "version: 1\nsandbox: { paths: { out: { root: ., mode: rw, create: false, stage: false, discard: false } } }\n";
  const { declaration } = await loadDeclaredProject(dir, { corral, workers: new Map() });
  expect(declaration.mounts).toEqual([{ name: "out", path: "/out", host: dir, mode: "rw" }]);
  const needs = (stage: string) =>
    parseWorker(`---\ncommand: [x]\nsandbox: { stage: ${stage}, zones: [{ name: z, stage: ${stage} }] }\n---\n`, "w")
      .needs;
  expect(needs("false")).toMatchObject({ zones: [{ name: "z" }] });
  expect(JSON.stringify(needs("false"))).not.toContain("stage");
  expect(needs("true")).toMatchObject({ stage: true, zones: [{ stage: true }] });
  expect(() => needs("no")).toThrow(/stage/);
});

describe("a path with `create: true`", () => {
  it("is made when the project is opened, and not when it is read", async () => {
    const project = await load("deep/out");
    expect(project.declaration.mounts).toMatchObject([{ path: "/out", host: join(dir, "deep/out") }]);
    await expect(lstat(join(dir, "deep"))).rejects.toThrow("ENOENT");
    await makeZoneFolders(project);
    expect((await lstat(join(dir, "deep/out"))).isDirectory()).toBe(true);
    expect((await load("deep/out")).newZones).toEqual([]);
  });

  it("is made only below the project, and through no link that leads out of it", async () => {
    await expect(load("../out")).rejects.toThrow("only a folder below the project is created");
    await expect(load(".")).resolves.toBeDefined();
    await symlink(base, join(dir, "up"));
    await expect(load("up/out")).rejects.toThrow("leads out of the project through a symbolic link");
    await symlink("nowhere", join(dir, "dangling"));
    await expect(load("dangling")).rejects.toThrow("does not exist");
  });

  it("can be any file or folder that is there", async () => {
    await writeFile(join(base, "file"), "");
    expect((await load("../file")).declaration.mounts).toMatchObject([{ host: join(base, "file") }]);
  });
});

describe("a project of texts", () => {
  it("reads no file of the folder, and keeps workers from those of the project around it", async () => {
    await mkdir(join(dir, "sub/workers"), { recursive: true });
    await writeFile(join(dir, "corral.yaml"), "version: 7\n");
    await writeFile(join(dir, "sub/workers/w.worker"), "nonsense");
    const texts = { corral: "version: 1\n", workers: new Map([["own", "---\ncommand: [id]\n---\n"]]) };
    const project = await loadDeclaredProject(join(dir, "sub"), texts);
    expect([...project.workers.keys()]).toEqual(["own"]);
    expect(project.file).toBeNull();
    expect(project.ownFiles).toContain(join(dir, "corral.yaml"));
    await expect(loadProject(dir)).rejects.toThrow("version");
  });
});

describe("`arguments` of a worker", () => {
  it("is for a command, and absent means none", () => {
    expect(parseWorker("---\ncommand: [id]\narguments: true\n---\n", "w.worker").takesArguments).toBe(true);
    for (const text of ["command: [id]", "command: [id]\narguments: false"])
      expect(parseWorker(`---\n${text}\n---\n`, "w.worker").takesArguments).toBeUndefined();
    expect(() => parseWorker("---\nmodel: script/a.yaml\narguments: true\n---\n", "w.worker")).toThrow(
      "is only for a `command`",
    );
  });
});
