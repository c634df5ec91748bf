import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { exposedOwnFiles } from "../../src/declarations/place/host-place.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { accessOf } from "../../src/sandbox/access.ts";
import { projectSandbox } from "../../src/sandbox/declare.ts";
import { derive } from "../../src/sandbox/derive.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { roomy } from "../sandbox/sandboxes.ts";

const made: string[] = [];
afterAll(() => Promise.all(made.map((dir) => rm(dir, { recursive: true }))));

async function projectWith(corral: string, folders: readonly string[]): Promise<string> {
  const dir = await realpath(await mkdtemp(join(tmpdir(), "corral-own-")));
  made.push(dir);
  for (const folder of folders) await mkdir(join(dir, folder), { recursive: true });
  await writeFile(join(dir, "corral.yaml"), corral);
  return dir;
}

async function sandboxOf(dir: string, inherit = true) {
  const project = await loadProject(dir);
  const root = projectSandbox(project.declaration, roomy);
  const child = derive(root, inherit ? { inherit } : { zones: [{ name: "code", mode: "rw" }] }, "worker");
  if (!child.ok) throw new Error("refused");
  return { project, sandbox: child.sandbox };
}

describe("a project's own files", () => {
  it("are read-only in a writable root form, whatever a worker inherits", async () => {
    const dir = await projectWith("version: 1\nsandbox: { root: { root: . } }\npolicies: ./rules\n", [
      "workers",
      "rules",
      "src",
    ]);
    const { project, sandbox } = await sandboxOf(dir);
    const access = (path: string) => accessOf(sandbox, path as VirtualPath);
    expect(["/corral.yaml", "/workers/a.worker", "/rules/x.yaml", "/src/a", "/new"].map(access)).toEqual([
      ...["read", "read", "read"],
      ...["write", "write"],
    ]);
    expect(exposedOwnFiles(sandbox, project.ownFiles)).toEqual([]);
  });

  it("are protected at the first step, because what is deeper could be renamed away", async () => {
    const dir = await projectWith("version: 1\nsandbox: { root: { root: . } }\nworkers: ./config/workers\n", [
      "config/workers",
    ]);
    const { sandbox } = await sandboxOf(dir);
    expect(accessOf(sandbox, "/config/other" as VirtualPath)).toBe("read");
  });

  it.each([
    ["hold them", "."],
    ["lie in them", "./workers/templates"],
    ["are them", "./workers"],
  ])("are never in a zone that a worker writes: folders that %s are refused", async (_, path) => {
    const zones = `version: 1\nsandbox: { mode: direct, zones: { code: { path: ${path}, mode: rw } } }\n`;
    const { project, sandbox } = await sandboxOf(await projectWith(zones, ["workers/templates"]), false);
    expect(exposedOwnFiles(sandbox, project.ownFiles)).toMatchObject([{ code: "MOUNT_SOURCE_REFUSED", path: "/code" }]);
  });

  it.each([
    ["there", true],
    ["not there yet", false],
  ])("include the script that plays an agent's model, also one that is %s", async (_, isThere) => {
    const agent = "---\nmodel: script/plays/deep/a.yaml\n---\n";
    const worker = async (dir: string): Promise<string> => {
      await writeFile(join(dir, "workers/a.worker"), agent);
      if (isThere) await writeFile(join(dir, "plays/deep/a.yaml"), "[]");
      return dir;
    };
    const folders = ["workers", isThere ? "plays/deep" : "plays"];
    const zones = "version: 1\nsandbox: { mode: direct, zones: { code: { path: ./plays, mode: rw } } }\n";
    const inZone = await sandboxOf(await worker(await projectWith(zones, folders)), false);
    expect(exposedOwnFiles(inZone.sandbox, inZone.project.ownFiles)).toMatchObject([{ code: "MOUNT_SOURCE_REFUSED" }]);
    const root = "version: 1\nsandbox: { root: { root: . } }\n";
    const { sandbox } = await sandboxOf(await worker(await projectWith(root, folders)));
    expect(accessOf(sandbox, "/plays/deep/a.yaml" as VirtualPath)).toBe("read");
  });

  it("do not include a policies folder that corral.yaml does not name, so that a worker cannot make one", async () => {
    const dir = await projectWith("version: 1\n", ["policies"]);
    expect((await loadProject(dir)).policiesDir).toBeNull();
  });
});
