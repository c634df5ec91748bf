import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { listImages, removableImages, removeImages } from "../../../src/operations/images.ts";
import { PROGRAM } from "../../cli/program.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { openProject, type ProjectFixture, sh } from "../project-fixture.ts";

/* Images of a project's own, on the real Engine. Each project removes what was made for it. */

const opened: ProjectFixture[] = [];
afterAll(async () => {
  for (const project of opened) {
    await cleanUp(project);
    await project[Symbol.asyncDispose]();
  }
});

function machineOf({ stateDir, corral }: ProjectFixture) {
  return { stateDir, engineEnv: process.env, project: corral.project };
}

async function cleanUp(project: ProjectFixture): Promise<void> {
  const of = machineOf(project);
  const made = (await listImages(of)).filter(({ kind }) => kind === "build" || kind === "apt");
  await removeImages(
    of,
    made.filter(({ tag }) => tag !== null),
  );
}

/** Another content in each run of the tests: nothing is left of an earlier one. */
const UNIQUE = randomBytes(8).toString("hex");

async function open(worker: Record<string, unknown>, files: Record<string, string>): Promise<ProjectFixture> {
  const project = await openProject({ workers: { w: { command: ["hello"], ...worker } }, files });
  opened.push(project);
  return project;
}

const DOCKERFILE = "ARG BASE=corral/base\nFROM $BASE\nCOPY hello /usr/local/bin/hello\n";
const hello = (text: string): string => `#!/bin/sh\n# ${UNIQUE}\necho ${text}\n`;

async function openHello(): Promise<ProjectFixture> {
  const project = await open(
    { image: { build: "./images/hello" } },
    { "images/hello/Dockerfile": DOCKERFILE, "images/hello/hello": hello("one") },
  );
  await chmod(join(project.dir, "images/hello/hello"), 0o755);
  return project;
}

async function statesOf(project: ProjectFixture): Promise<string[]> {
  const listed = await listImages(machineOf(project));
  return listed.filter(({ kind }) => kind !== "own").map(({ name, state, usedBy }) => `${name} ${state} ${usedBy}`);
}

/** As another process sees the project: a process keeps the images that it has found. */
async function again(project: ProjectFixture): Promise<string> {
  const options = {
    env: { ...process.env, CORRAL_STATE_DIR: project.stateDir },
    encoding: "utf8",
    stdio: "pipe",
  } as const;
  return execFileSync(process.execPath, [PROGRAM, "run", "w", "--project", project.dir], options);
}

describe("an image of a project's own", () => {
  it("is built by the first run, and again when its folder has changed", async () => {
    const project = await openHello();
    expect(await statesOf(project)).toEqual(["images/hello missing w"]);
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "succeeded", stdout: "one\n" });
    const steps = project.events.flatMap((event) => (event.type === "image" ? [event.progress.text] : []));
    expect(steps[0]).toBe("building");
    expect(steps.at(-1)).toMatch(/^built, \d+ MB/);
    const before = project.events.length;
    await project.run("w");
    expect(project.events.slice(before).filter(({ type }) => type === "image")).toEqual([]);
    expect(await statesOf(project)).toEqual(["images/hello present w"]);
    const image = project.planOf("w").image.name;
    expect(image).toMatch(/^corral-built\/hello:[0-9a-f]{20}$/);
    await writeFile(join(project.dir, "images/hello/hello"), hello("two"));
    expect(await statesOf(project)).toEqual(["images/hello missing w", "images/hello stale "]);
    expect(await again(project)).toBe("two\n");
    expect(await statesOf(project)).toEqual(["images/hello present w", "images/hello stale "]);
    const stale = await removableImages(machineOf(project), "unused");
    expect(stale.map(({ tag }) => tag)).toEqual([image]);
    await removeImages(machineOf(project), stale);
    expect(await statesOf(project)).toEqual(["images/hello present w"]);
  });

  it("that cannot be built refuses the run; what the build printed is for the user", async () => {
    const project = await open(
      { image: { build: "images/bad" } },
      { "images/bad/Dockerfile": `FROM corral/base\nRUN echo ${UNIQUE} is the reason; exit 9\n` },
    );
    const result = await project.run("w");
    expect(result.violations).toMatchObject([
      {
        code: "IMAGE_NOT_MADE",
        image: "images/bad",
        reason: expect.stringMatching(/^the build failed at `RUN echo .*`: .* is the reason$/),
        get: "corral images build images/bad",
      },
    ]);
    const told = project.events.flatMap((event) => (event.type === "image" ? [event.progress.text] : []));
    expect(told.at(-1)).toContain(`${UNIQUE} is the reason`);
  });

  it("whose base the Engine does not have is not fetched by a name that can change", async () => {
    const project = await open(
      { image: { build: "images/far" } },
      { "images/far/Dockerfile": "FROM nobody.invalid/nothing:1\n" },
    );
    const result = await project.run("w");
    expect(result.error?.message).toContain("the Engine does not have this base image");
    expect(result.error?.message).toContain("corral images pull nobody.invalid/nothing:1");
  });

  // Shortly, `examples/images-page.test.ts` has the same package built.
  it.runIf(AT_LENGTH)("gets packages of Debian, built once", async () => {
    const project = await open({ command: sh("tree --version"), environment: { apt: ["tree"] } }, {});
    expect(await statesOf(project)).toEqual(["apt:tree missing w"]);
    expect(await project.run("w")).toMatchObject({ status: "succeeded", stdout: expect.stringMatching(/^tree v2/) });
    expect(await statesOf(project)).toEqual(["apt:tree present w"]);
  });
});
