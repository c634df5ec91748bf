import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterEach, describe, expect, it } from "vitest";
import { listImages, pullImage, removableImages, removeImages } from "../../../src/operations/images.ts";
import { openProject, type ProjectFixture } from "../project-fixture.ts";
import { type ImageRegistry, imageRegistry } from "./registry.ts";

/* Images of a registry, pulled by the real Engine from a registry of the test. */

const parts: AsyncDisposable[] = [];
afterEach(async () => {
  for (const part of parts.splice(0).toReversed()) await part[Symbol.asyncDispose]();
});

async function registryWithTool(gate: string): Promise<ImageRegistry> {
  const registry = await imageRegistry({ "bin/busybox": await readFile(gate), unique: randomBytes(16) });
  parts.push(registry);
  return registry;
}

async function open(image: (registry: ImageRegistry) => Record<string, unknown>) {
  const first = await openProject({ workers: {} });
  const registry = await registryWithTool(await first.corral.environment.gate());
  await first[Symbol.asyncDispose]();
  const command = ["/bin/busybox", "sh", "-c", "echo $FROM"];
  const project = await openProject({ workers: { w: { image: image(registry), command } } });
  parts.push(project);
  return { project, registry };
}

function machineOf({ stateDir, corral }: ProjectFixture) {
  return { stateDir, engineEnv: process.env, project: corral.project };
}

describe("an image of a registry", () => {
  it("is pulled by its digest at the first run, and not again", async () => {
    const { project, registry } = await open(({ repository, digest }) => ({ pull: `${repository}:any-tag`, digest }));
    const of = machineOf(project);
    const states = async () => (await listImages(of)).filter(({ kind }) => kind === "pull").map(({ state }) => state);
    expect(await states()).toEqual(["missing"]);
    expect((await project.run("w")).stdout).toBe("registry\n");
    // The tag is for people: the Engine is asked for the digest alone.
    const manifests = registry.requests.filter((request) => request.includes("/manifests/"));
    expect(manifests.length).toBeGreaterThan(0);
    expect(manifests.every((request) => request.endsWith(registry.digest))).toBe(true);
    expect(project.planOf("w").image.name).toBe(`${registry.repository}@${registry.digest}`);
    const before = registry.requests.length;
    await project.run("w");
    expect(registry.requests.length).toBe(before);
    expect(await states()).toEqual(["present"]);
    await removeImages(of, await removableImages(of, [`${registry.repository}:any-tag`]));
    expect(await states()).toEqual(["missing"]);
  });

  it("with another digest than the file names is refused", async () => {
    const digest = `sha256:${"a".repeat(64)}`;
    const { project } = await open(({ repository }) => ({ pull: `${repository}:1`, digest }));
    expect((await project.run("w")).violations).toMatchObject([
      { code: "IMAGE_NOT_MADE", get: expect.stringMatching(/^corral images pull 127/) },
    ]);
  });

  it("can be pulled by its tag to learn its digest", async () => {
    const { project, registry } = await open(({ repository, digest }) => ({ pull: `${repository}:2`, digest }));
    const of = machineOf(project);
    const pulled = await pullImage(of, `${registry.repository}:1`, {});
    expect(pulled).toMatchObject({ reference: `${registry.repository}:1`, digest: registry.digest });
    await removeImages(of, await removableImages(of, [`${registry.repository}:2`]));
    await removeImages(of, [
      { name: "", kind: "pull", state: "present", tag: `${registry.repository}:1`, id: "", sizeBytes: 0, usedBy: [] },
    ]);
  });
});
