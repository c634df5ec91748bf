import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { holdHostExecuted, MAX_HELD, type SearchDepths } from "../../../src/isolation/sources/host-executed.ts";
import type { Policy } from "../../../src/sandbox/policy.ts";
import { mount, project, roomy } from "../../sandbox/sandboxes.ts";

const made: string[] = [];
afterEach(() => {
  for (const dir of made.splice(0)) rmSync(dir, { recursive: true });
});

const REACH: SearchDepths = { near: 50, far: 20, readOfOne: 10, readOfFar: 200, readOfNear: 1000 };
const asking: Policy = { ...roomy, hardening: { ...roomy.hardening, hostExecuted: "ask" } };
const many = (count: number, name: (index: number) => string): string[] =>
  Array.from({ length: count }, (_, i) => name(i));

/** What is held of a mount that has these files. */
async function held(files: readonly string[], links: readonly string[] = []) {
  const host = mkdtempSync(join(tmpdir(), "corral-host-executed-"));
  made.push(host);
  for (const file of [...files, ...links]) mkdirSync(dirname(join(host, file)), { recursive: true });
  for (const file of files) writeFileSync(join(host, file), "");
  for (const link of links) symlinkSync("nowhere", join(host, link));
  const approval = { write: "pre_approved", delete: "pre_approved" } as const;
  const found = await holdHostExecuted(project([mount("/out", "rw", { host, approval })], {}, asking), REACH);
  if (!found.ok) return found.violations;
  return { held: found.held.map(({ path, mode }) => `${mode} ${path}`).toSorted(), partly: found.partly };
}

describe("what programs of the host execute is looked for in writable direct mounts", () => {
  it("in a folder of any size, by name if it is large", async () => {
    const files = [
      ...many(300, (i) => `r${i}.json`),
      ".git/config",
      ".github/workflows/ci.yml",
      ".envrc",
      "Jenkinsfile",
    ];
    expect(await held(files)).toEqual({
      held: ["ro /out/.envrc", "ro /out/.git/config", "ro /out/.github/workflows", "ro /out/Jenkinsfile"],
      partly: [],
    });
  });

  it("always near the top, however much is deeper, and it says if that was too much", async () => {
    const flood = many(60, (i) => `a/deep/${i}/x`);
    const files = [".git/modules/lib/config", "b/.git/hooks/pre-commit", "z/.vscode/tasks.json", ...flood];
    const names = ["ro /out/.git/modules/lib/config", "ro /out/b/.git/hooks", "ro /out/z/.vscode"];
    expect(await held(files)).toEqual({ held: names, partly: ["/out"] });
    expect(await held(files.slice(0, 3))).toEqual({ held: names, partly: [] });
  });

  it("and refused if the top itself is too much, or more is found than can be held", async () => {
    expect(await held(many(60, (i) => `${i}/x`))).toMatchObject([{ reason: expect.stringContaining("50 folders") }]);
    const names = [".npmrc", ".envrc", ".mcp.json", ".yarnrc", ".travis.yml", ".bashrc", ".zshrc"];
    const files = many(40, String).flatMap((folder) => names.map((name) => `${folder}/${name}`));
    expect(files.length).toBeGreaterThan(MAX_HELD);
    expect(await held(files)).toMatchObject([{ reason: expect.stringMatching(/more than 250 names.*stage: true/) }]);
  });

  it("in folders that are named like those of a repository, or lie beside what looks like one", async () => {
    const repository = ["HEAD", "objects/info/alternates", "objects/ab/x"];
    const inside = [".github", "sub"].flatMap((folder) => repository.map((name) => `${folder}/${name}`));
    const files = [".git/modules/logs/config", ".git/refs/heads/main", "sub/refs/p/.envrc", ".github/refs/x"];
    const found = await held([...files, ...inside, ".github/workflows/ci.yml"]);
    const names = [".git/modules/logs/config", ".github/HEAD", ".github/objects/info/alternates", ".github/workflows"];
    const others = ["sub/HEAD", "sub/objects/info/alternates", "sub/refs/p/.envrc"];
    expect(found).toEqual({ held: [...names, ...others].map((name) => `ro /out/${name}`), partly: [] });
  });

  it("in packages last, which are no reason to refuse", async () => {
    const files = ["a/b/.npmrc", ...many(30, (i) => `a/node_modules/${i}/.vscode/x`)];
    const found = await held(files, ["a/node_modules/p/.travis.yml"]);
    expect(found).toMatchObject({ held: expect.arrayContaining(["ro /out/a/b/.npmrc"]), partly: ["/out"] });
  });
});
