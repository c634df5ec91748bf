import { symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RawNeeds } from "../../src/declarations/worker/exposure.ts";
import { resolveNeeds } from "../../src/run/model/permission.ts";
import type { Policy } from "../../src/sandbox/policy.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { projectFolder } from "./project-folder.ts";

const POLICY = { name: "p" } as Policy;

async function caller(files: Record<string, string> = {}) {
  const projectDir = await projectFolder({ "data/": "", "home/": "", "one.txt": "", ...files });
  const mount = (name: string, file = name) => ({
    name,
    path: `/${name}` as VirtualPath,
    host: join(projectDir, file),
    mode: "ro" as const,
  });
  const parent: Sandbox = {
    chain: ["project", "boss"],
    mounts: [mount("data"), mount("home"), mount("one", "one.txt")],
    workingDir: "/data" as VirtualPath,
    network: false,
    limits: {},
    policy: POLICY,
    narrowings: [],
    rooted: false,
  };
  return { projectDir, parent };
}

async function resolved(raw: RawNeeds, context: Awaited<ReturnType<typeof caller>>) {
  const resolution = await resolveNeeds(raw, context);
  if (!resolution.ok) throw new Error(JSON.stringify(resolution.violations));
  return resolution.needs;
}

describe("resolving a worker's needs", () => {
  it("leaves absent what is absent, and keeps an empty list", async () => {
    const context = await caller();
    expect(await resolved({}, context)).toEqual({});
    expect(await resolved({ allowRead: [], zones: [{ name: "data" }] }, context)).toEqual({
      allowRead: [],
      zones: [{ name: "data" }],
    });
  });

  it("takes every way of writing a place, on / whatever the caller's working directory", async () => {
    const allowRead = ["/data/x", "data/x", "data:x", "data", "~/y"];
    expect((await resolved({ allowRead }, await caller())).allowRead).toEqual(["/data/x", "/data", "/home/y"]);
  });

  it("makes an entry that is a file its directory, and leaves what is missing as it is", async () => {
    const context = await caller({ "data/sub/a.md": "" });
    const allowRead = [
      "/data/sub/a.md",
      "/data/sub",
      "/data/none/b.md",
      "/data/sub/a.md/below",
      "/one",
      "/one/x",
      "/other",
    ];
    expect((await resolved({ allowRead }, context)).allowRead).toEqual([
      "/data/sub",
      "/data/none/b.md",
      "/data/sub/a.md/below",
      "/one",
      "/one/x",
      "/other",
    ]);
  });

  it("follows no link below a mount", async () => {
    const context = await caller({ "data/real/a.md": "", "outside/a.md": "" });
    await symlink("real/a.md", join(context.projectDir, "data/file"));
    await symlink("../outside", join(context.projectDir, "data/folder"));
    const allowWrite = ["/data/file", "/data/folder/a.md"];
    expect((await resolved({ allowWrite }, context)).allowWrite).toEqual(allowWrite);
  });

  it("finds the real place of a worker's own paths, and adds the policy that was loaded for it", async () => {
    const context = await caller({ "deep/real/": "" });
    await symlink("deep/real", join(context.projectDir, "linked"));
    const needs = await resolveNeeds(
      { paths: [{ name: "p", root: "./linked", mode: "rw" }] },
      { ...context, policy: POLICY },
    );
    expect(needs).toEqual({
      ok: true,
      needs: { paths: [{ name: "p", host: join(context.projectDir, "deep/real"), mode: "rw" }], policy: POLICY },
    });
  });

  it("reports everything that it cannot resolve at once, without a host path", async () => {
    const raw: RawNeeds = {
      paths: [{ name: "p", root: "./none", mode: "ro" }],
      allowRead: ["/data", "/../x"],
      workingDir: "\\x",
    };
    const valid = ["/data", "/home", "/one"];
    expect(await resolveNeeds(raw, await caller())).toEqual({
      ok: false,
      violations: [
        { code: "MOUNT_SOURCE_REFUSED", path: "/p", reason: "it does not exist" },
        { code: "PATH_NOT_AVAILABLE", asked: "/../x", by: "boss", valid },
        { code: "PATH_NOT_AVAILABLE", asked: "\\x", by: "boss", valid },
      ],
    });
  });
});
