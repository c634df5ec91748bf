import { execFileSync, spawnSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, readdir, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ExaminedImages } from "../../../src/isolation/engine/examined-images.ts";
import { acquireLock, buildEngineImages } from "../../../src/isolation/engine/images/build-images.ts";
import { gateBinary, readContext } from "../../../src/isolation/engine/images/catalog.ts";
import { imageStatus } from "../../../src/isolation/engine/images/debian-base.ts";
import { connect } from "../../../src/isolation/engine/open.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { ImageBuildError, type ImageProgress } from "../../../src/isolation/port/images.ts";
import { currentOwner, formatOwner } from "../../../src/state/owner.ts";
import { statePaths } from "../../../src/state/state-dir.ts";

/** Tags of this process alone, so that no test touches the real images. */
const prefix = `corral-test-${process.pid}`;
let docker: Docker;
let dir: string;
let imagesDir: string;
let stateDir: string;
let progress: ImageProgress[];

beforeAll(async () => {
  docker = (await connect(process.env)).docker;
});

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-images-"));
  imagesDir = join(dir, "images");
  stateDir = join(dir, "state");
  progress = [];
  // Nothing is fetched: these images only copy files onto the Debian that the real ones stand on.
  await writeImage("base", ["COPY hello /hello"], { hello: "hello" });
  await writeImage("more", ["RUN cp /hello /more"]);
});

afterEach(async () => {
  // The base is the same for most tests, and takes a second to build.
  for (const name of await readdir(imagesDir)) if (name !== "base") await removed(name);
  await rm(dir, { recursive: true });
});

afterAll(() => removed("base"));

async function removed(name: string): Promise<void> {
  await docker
    .getImage(`${prefix}/${name}`)
    .remove()
    .catch(() => {});
}

async function writeImage(name: string, instructions: readonly string[], files: Record<string, string> = {}) {
  await mkdir(join(imagesDir, name), { recursive: true });
  const dockerfile = ["ARG BASE=scratch", "FROM $BASE", ...instructions, ""].join("\n");
  for (const [file, content] of Object.entries({ ...files, Dockerfile: dockerfile })) {
    await writeFile(join(imagesDir, name, file), content);
  }
}

function build(options: { names?: string[]; signal?: AbortSignal; env?: Record<string, string> } = {}) {
  return buildEngineImages({
    docker,
    imagesDir,
    stateDir,
    prefix,
    onProgress: (event) => progress.push(event),
    ...options,
  });
}

/** The containers in which the Engine builds with such a command. */
async function buildersOf(command: string) {
  return (await docker.listContainers({ all: true })).filter(({ Command }) => Command.includes(command));
}

async function states(): Promise<Record<string, string>> {
  const statuses = await imageStatus({ docker, imagesDir, stateDir, prefix });
  return Object.fromEntries(statuses.map(({ name, state }) => [name, state]));
}

describe("buildImages", () => {
  it("builds the base first, and nothing a second time: two builds of one state folder take turns", async () => {
    await removed("base");
    expect(await states()).toEqual({ base: "missing", more: "missing" });
    const both = await Promise.all([build(), build()]);
    const first = both.find((images) => images.some(({ built }) => built)) ?? [];
    const second = both.find((images) => images !== first) ?? [];
    expect(first.map(({ tag, built }) => [tag, built])).toEqual([
      [`${prefix}/base`, true],
      [`${prefix}/more`, true],
    ]);
    expect(await states()).toEqual({ base: "present", more: "present" });
    expect(second.map(({ id, built }) => [id, built])).toEqual(first.map(({ id }) => [id, false]));
    expect(progress.filter(({ text }) => text.startsWith("waiting for another build"))).toHaveLength(1);

    // Each line is told with its step.
    const more = progress.filter(({ image, text }) => image === `${prefix}/more` && !text.startsWith("waiting"));
    expect(more.map(({ step }) => step)).toContain("3/5 RUN cp /hello /more");
    const about = more.filter(({ step }) => step === undefined).map(({ text }) => text);
    expect(about).toEqual(["building", expect.stringMatching(/^built, \d+ MB, [\d.]+ s$/)]);
  });

  it("builds an image anew when a file of it changes, and then what stands on it, and leaves no old one behind", async () => {
    const [oldBase, oldMore] = await build();
    await writeImage("base", ["COPY hello /hello"], { hello: "other" });
    expect(await states()).toMatchObject({ base: "stale" });
    const rebuilt = await build();
    expect(rebuilt.map(({ built }) => built)).toEqual([true, true]);
    for (const old of [oldBase, oldMore]) await expect(docker.getImage(old?.id ?? "").inspect()).rejects.toThrow();
  });

  it("builds only what is named, and the base", async () => {
    await writeImage("broken", ["RUN exit 9"]);
    expect((await build({ names: ["more"] })).map(({ name }) => name)).toEqual(["base", "more"]);
    await expect(build({ names: ["nothing"] })).rejects.toThrow(
      "no such image: nothing. There are: base, broken, more",
    );
  });

  it("says in which step a build failed, and what it printed last", async () => {
    await writeImage("more", ["RUN echo the reason; exit 9"]);
    const error: unknown = await build().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ImageBuildError);
    expect((error as Error).message).toMatch(/more: the build failed at `RUN echo the reason; exit 9`$/m);
    expect((error as Error).message).toMatch(/^ {2}the reason$/m);
    expect(await states()).toEqual({ base: "present", more: "missing" });
  });

  it("stops when it is cancelled, and leaves no container", async () => {
    const duration = `${10_000 + process.pid}`;
    await writeImage("more", [`RUN echo sleeping; sleep ${duration}`]);
    const stop = new AbortController();
    const building = buildEngineImages({
      ...{ docker, imagesDir, stateDir, prefix, signal: stop.signal },
      onProgress: ({ text }) => text === "sleeping" && stop.abort(new Error("enough")),
    });
    await expect(building).rejects.toThrow();
    await expect.poll(() => buildersOf(duration)).toEqual([]);
    await expect(stat(join(stateDir, "images.lock"))).rejects.toThrow("ENOENT");
  });

  it("builds those that stand on the base at the same time, and ends all of them if one fails", async () => {
    const duration = `${20_000 + process.pid}`;
    await writeImage("fails", ["RUN sleep 2; exit 9"]);
    await writeImage("more", [`RUN echo sleeping; sleep ${duration}`]);
    await expect(build()).rejects.toThrow(/fails: the build failed at `RUN sleep 2; exit 9`/);
    expect(progress.filter(({ text }) => text === "sleeping").map(({ image }) => image)).toContain(`${prefix}/more`);
    await expect.poll(() => buildersOf(duration)).toEqual([]);
    await expect(stat(join(stateDir, "images.lock"))).rejects.toThrow("ENOENT");
  });
});

describe("packages of npm in an image", () => {
  const archive = [
    "#!/bin/sh",
    "for to; do :; done",
    'cd "$(mktemp -d)" && mkdir package && echo 1 > package/file && tar -czf "$to/a.tgz" package',
  ].join("\n");

  async function npmThat(script: string): Promise<Record<string, string>> {
    await mkdir(join(dir, "bin"));
    await writeFile(join(dir, "bin/npm"), script, { mode: 0o755 });
    return { PATH: `${join(dir, "bin")}:${process.env.PATH}`, HOME: dir };
  }

  const naming = (release: object) => ({ "npm-packages.json": JSON.stringify([{ release, into: "lib" }]) });

  it("are refused if their digest is another one, and nothing stays", async () => {
    const digest = `sha512-${"A".repeat(86)}==`;
    await writeImage("more", ["ADD npm-packages.tar /"], naming({ any: { package: "a@1.0.0", integrity: digest } }));
    const building = build({ env: await npmThat(archive) });
    await expect(building).rejects.toThrow(/the package a@1\.0\.0 of npm has not the digest/);
    expect(await states()).toEqual({ base: "present", more: "missing" });
    expect((await readdir(stateDir)).filter((name) => name.startsWith("npm-packages"))).toEqual([]);
  });

  it("say what npm printed if it cannot fetch one", async () => {
    await writeImage(
      "more",
      ["ADD npm-packages.tar /"],
      naming({ any: { package: "a@1.0.0", integrity: "sha512-AA==" } }),
    );
    const building = build({ env: await npmThat("#!/bin/sh\necho no such registry >&2; exit 1\n") });
    await expect(building).rejects.toThrow(/cannot be fetched[\s\S]*no such registry/);
  });

  it("are refused if there is none for the architecture", async () => {
    await writeImage("more", ["ADD npm-packages.tar /"], naming({}));
    await expect(build()).rejects.toThrow(/npm-packages\.json has no package for the architecture/);
  });
});

describe("the real images", () => {
  it.each(["base", "documents", "node", "python"])(
    "corral/%s holds the cell's user and no setuid program",
    async (name) => {
      const image = await docker.getImage(`corral/${name}`).inspect();
      expect(image.Config.Volumes ?? {}).toEqual({});
      const script = "id -u corral; find / -xdev -perm /6000 ! -type l; which curl jq corral-call";
      const container = await docker.createContainer({
        Image: image.Id,
        Tty: true,
        Cmd: ["sh", "-c", script],
        HostConfig: { NetworkMode: "none" },
      });
      try {
        await container.start();
        await container.wait();
        const printed = (await container.logs({ stdout: true })).toString("utf8");
        expect(printed.trim().split(/\s+/)).toEqual(["65532", "/usr/bin/curl", "/usr/bin/jq", "/usr/bin/corral-call"]);
      } finally {
        await container.remove({ force: true });
      }
    },
  );
});

describe("readContext", () => {
  it("makes the same bytes of the same files, whatever their modes and times", async () => {
    const before = await readContext(join(imagesDir, "base"));
    await chmod(join(imagesDir, "base/hello"), 0o755);
    await utimes(join(imagesDir, "base/hello"), 1, 1);
    expect((await readContext(join(imagesDir, "base"))).sha256).toBe(before.sha256);
    await writeFile(join(imagesDir, "base/hello"), "other");
    expect((await readContext(join(imagesDir, "base"))).sha256).not.toBe(before.sha256);
  });
});

describe("gateBinary", () => {
  it("takes a static busybox out of the base once, and leaves no container", async () => {
    const file = await gateBinary({ docker, stateDir });
    expect(execFileSync(file, ["echo", "through"], { env: {} }).toString()).toBe("through\n");
    expect(spawnSync("ldd", [file]).status).not.toBe(0);
    const { mode, ino } = await stat(file);
    expect(mode & 0o777).toBe(0o555);
    expect(await gateBinary({ docker, stateDir })).toBe(file);
    expect((await stat(file)).ino).toBe(ino);
    // Other processes on this machine may be taking theirs at the same time.
    const own = { label: [`dev.corral.owner=${formatOwner(currentOwner())}`] };
    expect(await docker.listContainers({ all: true, filters: own })).toEqual([]);
  });

  it("takes it out again where the file was changed", async () => {
    const file = await gateBinary({ docker, stateDir });
    await chmod(file, 0o755);
    await writeFile(file, "something else");
    expect(await gateBinary({ docker, stateDir })).toBe(file);
    expect(execFileSync(file, ["echo", "again"]).toString()).toBe("again\n");
  });

  it("says what to run where the base is not built", async () => {
    await removed("base");
    await expect(gateBinary({ docker, stateDir, prefix })).rejects.toThrow("corral images build base");
  });
});

describe("acquireLock", () => {
  const lock = () => join(dir, "lock");
  const left = (owner: string) => `0123456789abcdef\n${owner}\n`;

  it("takes over what a dead process left, and what was never a lock of Corral's", async () => {
    const dead = { ...currentOwner(), startTicks: "1" };
    for (const content of [left(formatOwner(dead)), "", "scribble"]) {
      await writeFile(lock(), content);
      await using _held = await acquireLock(lock());
      expect((await readdir(dir)).filter((name) => name.startsWith("lock"))).toEqual(["lock"]);
    }
    expect(await readdir(dir)).not.toContain("lock");
  });

  it("waits for a live owner, until cancelled", async () => {
    await using _held = await acquireLock(lock());
    const waits: number[] = [];
    const stop = new AbortController();
    const onWait = (pid: number): void => {
      waits.push(pid);
      stop.abort(new Error("enough"));
    };
    await expect(acquireLock(lock(), { signal: stop.signal, onWait })).rejects.toThrow(/abort/);
    expect(waits).toEqual([process.pid]);
  });

  it("does not judge a process of another machine", async () => {
    await writeFile(lock(), left(formatOwner({ ...currentOwner(), machine: "elsewhere", startTicks: "1" })));
    await expect(acquireLock(lock(), { signal: AbortSignal.timeout(500) })).rejects.toThrow();
  });
});

describe("an image that is gone before it was looked through", () => {
  it("is missing, and what comes under its id later is not taken for one that has no device", async () => {
    const maker = { owner: currentOwner(), sealKey: Buffer.alloc(32) };
    const examined = new ExaminedImages({ docker, maker, stateDir, seccomp: "{}" });
    const plan = { image: { id: `sha256:${"0".repeat(64)}`, name: "gone" } } as Plan;
    for (let look = 0; look < 2; look += 1)
      expect(await examined.objection(plan)).toEqual({ code: "IMAGE_MISSING", image: "gone" });
    await expect(stat(statePaths(stateDir).examinedImages)).rejects.toThrow("ENOENT");
  });
});
