import { chown, lchown, mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nearestProject } from "../../src/cli/verbs/without-project.ts";

let base: string;

beforeAll(async () => {
  base = await realpath(await mkdtemp(join(tmpdir(), "corral-found-")));
  for (const dir of ["mine/deep/er", "theirs/sub", "linked/sub", "workers-only/workers", "empty"])
    await mkdir(join(base, dir), { recursive: true });
  for (const dir of ["mine", "theirs"]) await writeFile(join(base, dir, "corral.yaml"), "version: 1\n");
  await symlink("../mine/corral.yaml", join(base, "linked/corral.yaml"));
});

afterAll(() => rm(base, { recursive: true }));

const found = (cwd: string, orHere = false) => nearestProject({ cwd: join(base, cwd) }, { orHere });

describe("the project of a command without --project", () => {
  it("is the nearest folder with a corral.yaml, from the working directory upwards", async () => {
    expect([await found("mine"), await found("mine/deep"), await found("mine/deep/er")]).toEqual([".", "..", "../.."]);
    expect(await found("linked/sub"), "through a link of the user's own").toBe("..");
    expect(await found("workers-only"), "a project without a corral.yaml").toBe(".");
  });

  it("is missed with the place where it was looked for", async () => {
    await expect(found("empty")).rejects.toThrow(
      `No corral.yaml in ${base}/empty or its parents. \`corral init\` makes a project, \`corral run --ro FOLDER -- COMMAND\` needs none, and --project names the folder of one`,
    );
    expect(await found("empty", true)).toBe(".");
  });

  it.runIf(process.getuid?.() === 0)("is not one of another user, unless it was entered", async () => {
    await chown(join(base, "theirs/corral.yaml"), 1234, 1234);
    await expect(found("theirs/sub")).rejects.toThrow(/theirs\/corral\.yaml belongs to another user.*--project/);
    expect(await found("theirs")).toBe(".");
    await chown(join(base, "mine/corral.yaml"), 1234, 1234);
    await expect(found("linked/sub"), "a link to a file of another user").rejects.toThrow("belongs to another user");
    await chown(join(base, "mine/corral.yaml"), 0, 0);
    await lchown(join(base, "linked/corral.yaml"), 1234, 1234);
    await expect(found("linked/sub"), "a link of another user").rejects.toThrow("belongs to another user");
    await lchown(join(base, "linked/corral.yaml"), 0, 0);
    expect(await found("linked/sub")).toBe("..");
    await chown(join(base, "linked"), 1234, 1234);
    await expect(found("linked/sub"), "a folder of another user").rejects.toThrow("belongs to another user");
  });
});
