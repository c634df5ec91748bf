import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { exposedOwnFiles } from "../../src/declarations/place/host-place.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { projectSandbox } from "../../src/sandbox/declare.ts";
import { derive } from "../../src/sandbox/derive.ts";
import { roomy } from "../sandbox/sandboxes.ts";

const made: string[] = [];
afterAll(() => Promise.all(made.map((dir) => rm(dir, { recursive: true }))));

async function folder(): Promise<string> {
  const dir = await realpath(await mkdtemp(join(tmpdir(), "corral-planted-")));
  made.push(dir);
  return dir;
}

const NESTED = `version: 1
sandbox:
  mode: direct
  zones:
    data: { path: ./data, mode: rw }
    reports: { path: ./data/reports }
`;

describe("a link that a worker could have put in place", () => {
  it("is not followed to a declared folder, for it would grant what the worker chose", async () => {
    const [dir, secret] = [await folder(), await folder()];
    await mkdir(join(dir, "data"));
    await symlink(secret, join(dir, "data", "reports"));
    await writeFile(join(dir, "corral.yaml"), NESTED);
    await expect(loadProject(dir)).rejects.toThrow("sandbox.zones.reports.path: leads through a symbolic link");
  });

  it("is followed where no worker can write", async () => {
    const [dir, elsewhere] = [await folder(), await folder()];
    await mkdir(join(elsewhere, "reports"));
    await symlink(elsewhere, join(dir, "data"));
    await writeFile(join(dir, "corral.yaml"), NESTED);
    const { declaration } = await loadProject(dir);
    expect(declaration.mounts.map((mount) => mount.host)).toEqual([elsewhere, join(elsewhere, "reports")]);
  });

  it("counts as the project's own file where it leads to one", async () => {
    const dir = await folder();
    for (const name of ["conf", "workers", "shared"]) await mkdir(join(dir, name));
    await writeFile(join(dir, "conf", "corral.yaml"), "version: 1\nsandbox: { root: { root: . } }\n");
    await symlink("conf/corral.yaml", join(dir, "corral.yaml"));
    await writeFile(join(dir, "shared", "w.worker"), "---\ncommand: [pwd]\n---\n");
    await symlink("../shared/w.worker", join(dir, "workers", "w.worker"));
    const { declaration, ownFiles } = await loadProject(dir);
    const root = projectSandbox(declaration, roomy);
    const child = derive(root, { inherit: true }, "worker");
    if (!child.ok) throw new Error("refused");
    expect(exposedOwnFiles(child.sandbox, ownFiles)).toEqual([]);
    const readOnly = child.sandbox.mounts.filter((mount) => mount.mode === "ro").map((mount) => mount.path);
    expect(readOnly).toEqual(["/conf", "/corral.yaml", "/shared", "/workers"]);
  });
});
