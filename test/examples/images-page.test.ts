import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { loadProject } from "../../src/declarations/project.ts";
import { openProject } from "../../src/library/opened-project.ts";
import { listImages, removeImages } from "../../src/operations/images.ts";
import { checkProject } from "../../src/operations/implied-project.ts";

const PAGE = join(import.meta.dirname, "../../docs/images.md");

/** The project of the page: each file names itself in its first line, or in its second below the line of a front matter. */
async function projectOfPage(): Promise<{ dir: string; stateDir: string }> {
  const base = await mkdtemp(join(tmpdir(), "images-page-"));
  onTestFinished(() => rm(base, { recursive: true, force: true }));
  const dir = join(base, "p");
  const page = await readFile(PAGE, "utf8");
  for (const [, block = ""] of page.matchAll(/^```\w+\n([\s\S]*?)^```$/gm)) {
    const file = /^(?:---\n)?# ([\w./-]+)\n/.exec(block)?.[1];
    if (file === undefined) continue;
    await mkdir(dirname(join(dir, file)), { recursive: true });
    await writeFile(join(dir, file), block);
  }
  return { dir, stateDir: join(base, "s") };
}

describe("the page about images", () => {
  it("has a project whose workers run as it says", { timeout: 300_000 }, async () => {
    const { dir, stateDir } = await projectOfPage();
    const machine = { stateDir, engineEnv: process.env };
    const before = await checkProject(dir, machine);
    expect(before).toMatchObject({ ok: true, problems: [], workers: 2 });
    expect(before.warnings).toContain(
      "images/hello: it is not built yet. The first run does it, and so does `corral images build images/hello`.",
    );
    await using project = await openProject(dir, { env: process.env, stateDir });
    onTestFinished(async () => {
      const of = { ...machine, project: await loadProject(dir) };
      const made = (await listImages(of)).filter(
        ({ kind, tag }) => (kind === "build" || kind === "apt") && tag !== null,
      );
      await removeImages(of, made);
    });
    expect((await project.run("hello")).stdout).toBe("hello from an image of my own\n");
    expect((await project.run("listing")).stdout).toMatch(/^tree v/);
    expect((await checkProject(dir, machine)).warnings).toEqual([]);
  });
});
