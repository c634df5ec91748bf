import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import type Docker from "dockerode";
import { type Header, pack } from "tar-stream";
import { afterAll, describe, expect, it } from "vitest";
import { openDockerEngine } from "../../src/isolation/engine/open.ts";
import { openEngine } from "../isolation/engine/engine.ts";
import { openProject, type ProjectFixture, writable } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/* Images, made entry by entry, that have something else where a cell needs directories and files of its own, in real cells. */

const opened: ProjectFixture[] = [];
const made: { readonly docker: Docker; readonly tag: string }[] = [];
afterAll(async () => {
  for (const { docker, tag } of made) await docker.getImage(tag).remove({ force: true });
  for (const project of opened) await project[Symbol.asyncDispose]();
});

type Entry = Pick<Header, "name"> & Partial<Header>;
const link = (name: string, linkname: string): Entry => ({ name, type: "symlink", linkname });

const SHELL = ["/bin/busybox", "sh", "-c"];

/** A project whose worker `w` has an image of these entries and a static shell, and nothing else. `config` is the image's, as it is in an archive. */
async function open(entries: readonly Entry[], script: string, config: Readonly<Record<string, unknown>> = {}) {
  const tag = `corral-test/${randomBytes(6).toString("hex")}:1`;
  const project = await openProject({
    workers: {
      w: { image: tag, command: [...SHELL, script], sandbox: { zones: [{ name: "data" }, writable("out")] } },
    },
    zones: { data: "ro", out: "rw" },
    files: { "data/mine": "mine\n" },
  });
  opened.push(project);
  const gates = join(project.stateDir, "gate");
  const [digest = ""] = readdirSync(gates).filter((name) => /^[0-9a-f]{64}$/.test(name));
  const layer = await packed([
    [{ name: "bin", type: "directory", mode: 0o755 }],
    [{ name: "bin/busybox", mode: 0o755 }, readFileSync(join(gates, digest, "busybox"))],
    ...entries.map((entry): Packed => [{ mode: 0o755, ...entry }, entry.type === "file" ? "image\n" : ""]),
  ]);
  const facts = {
    architecture: process.arch === "x64" ? "amd64" : process.arch,
    os: "linux",
    config,
    rootfs: { type: "layers", diff_ids: [`sha256:${createHash("sha256").update(layer).digest("hex")}`] },
  };
  const archive = await packed([
    [{ name: "layer.tar" }, layer],
    [{ name: "config.json" }, JSON.stringify(facts)],
    [{ name: "manifest.json" }, JSON.stringify([{ Config: "config.json", RepoTags: [tag], Layers: ["layer.tar"] }])],
  ]);
  const answer = await project.docker.loadImage(Readable.from([archive]));
  await new Promise((done) => answer.resume().once("end", done));
  made.push({ docker: project.docker, tag });
  return project;
}

type Packed = readonly [header: Entry, content?: string | Buffer];
async function packed(files: readonly Packed[]): Promise<Buffer> {
  const tar = pack();
  for (const [header, content = ""] of files) tar.entry(header, content);
  tar.finalize();
  return Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>));
}

const dir = (name: string): Entry => ({ name, type: "directory" });
const device = (name: string, devmajor: number, devminor: number): Entry => ({
  name,
  type: "character-device",
  mode: 0o666,
  devmajor,
  devminor,
});

const manyHarmless = (): Entry[] => [
  dir("x"),
  ...Array.from({ length: 800 }, (_, at) => device(`x/${"n".repeat(80)}${at}`, 1, 3)),
  device("x/con", 5, 1),
];

const LOOK =
  "/bin/busybox cat /data/mine; /bin/busybox stat -f -c %T /tmp /dev /proc; /bin/busybox grep -c 127.0.0.1 /etc/hosts";

describe("an image with something else in the place of", () => {
  const upwards = "../../../../../../../../..";
  const replaced: readonly (readonly [what: string, entries: (host: string) => readonly Entry[]])[] = [
    [
      "/dev, /proc, /sys and /etc, links to a folder of the host",
      (host) => [
        link("dev", `${upwards}${host}`),
        link("proc", `${upwards}${host}`),
        link("sys", host),
        link("etc", `${upwards}${host}`),
      ],
    ],
    [
      "files of /etc, links to it, /dev, a file, /sys, a FIFO, and /proc, a device",
      (host) => [
        dir("etc"),
        ...["hosts", "resolv.conf", "hostname", "passwd"].map((name) => link(`etc/${name}`, `${host}/${name}`)),
        link("etc/group", `${upwards}${host}/group`),
        { name: "dev", type: "file" },
        { name: "sys", type: "fifo" },
        device("proc", 1, 3),
      ],
    ],
  ];
  it.each(isAgain() ? replaced.slice(0, 1) : replaced)("%s, starts with the cell's own", async (_, entries) => {
    const host = mkdtempSync(join(tmpdir(), "host-"));
    const project = await open(entries(host), LOOK);
    const result = await project.run("w");
    expect(readdirSync(host)).toEqual([]);
    expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe("mine\ntmpfs\ntmpfs\nproc\n1\n");
    expect(await project.traces()).toEqual([]);
    rmdirSync(host);
  });

  // Each of an image is named, so one image has several.
  const refused: readonly (readonly [texts: readonly string[], entries: readonly Entry[]])[] = [
    [
      ["/tmp", "/home", "/data", "/.corral", "/out"].map((path) => `a symbolic link at ${path}`),
      [
        ...[dir("var"), dir("etc"), dir("x"), link("tmp", "var"), link("home", `${"../".repeat(7)}tmp`)],
        ...[link("data", "/etc"), link(".corral", "/x"), link("out", "/data")],
      ],
    ],
    [
      ["a file at /.corral", "a file at /data", "a FIFO at /tmp", "a device at /home"],
      [
        ...[".corral", "data"].map((name): Entry => ({ name, type: "file" })),
        { name: "tmp", type: "fifo" },
        device("home", 1, 3),
      ],
    ],
    [["a directory at /.corral/busybox"], [dir(".corral"), dir(".corral/busybox")]],
    [["a symbolic link at /.corral/busybox"], [dir(".corral"), link(".corral/busybox", "/bin/busybox")]],
  ];
  // Images are looked at before a driver has a part in it.
  it.each(isAgain() ? refused.slice(0, 1) : refused)("%j, is refused and named", async (texts, entries) => {
    const project = await open(entries, LOOK);
    const result = await project.run("w");
    expect(result, `${result.stdout} ${JSON.stringify(result.error)}`).toMatchObject({
      status: "refused",
      violations: [{ code: "IMAGE_REFUSED" }],
    });
    for (const text of texts) expect(JSON.stringify(result.violations)).toContain(`it has ${text}`);
    expect(await project.traces()).toEqual([]);
  });
});

describe("an image with device nodes", () => {
  it("is refused, and its nodes are named", async () => {
    const nodes = [
      device("con", 5, 1),
      device("tun", 10, 200),
      { ...device("disk", 254, 0), type: "block-device" as const },
    ];
    const project = await open([dir("x"), ...nodes.map((node) => ({ ...node, name: `x/${node.name}` }))], LOOK);
    for (const _ of ["looked at", "remembered"]) {
      const { status, violations } = await project.run("w");
      expect([status, violations]).toMatchObject(["refused", [{ code: "IMAGE_REFUSED" }]]);
      for (const { name } of nodes) expect(JSON.stringify(violations)).toContain(`/x/${name}`);
    }
    expect(await project.traces()).toEqual([]);
  });

  const hidden: readonly (readonly [how: string, entries: readonly Entry[], named: readonly string[]])[] = [
    [
      "by a name that ends a line, and beside a VOLUME",
      [device("line\r", 5, 1), device("end\u2028x", 5, 1), dir("v"), dir("v2"), device("v2/con", 5, 1)],
      ["/line", "/end", "/v2/con"],
    ],
    ["behind more harmless ones than are read", manyHarmless(), ["more than 64 KiB of names"]],
  ];
  it.each(isAgain() ? [] : hidden)("hidden %s, is refused", async (_, entries, named) => {
    const project = await open(entries, LOOK, { Volumes: { "/v": {} } });
    const { status, violations } = await project.run("w");
    expect([status, violations]).toMatchObject(["refused", [{ code: "IMAGE_REFUSED" }]]);
    for (const each of named) expect(JSON.stringify(violations)).toContain(each);
  });

  it.skipIf(isAgain())("is refused under a name of Corral's own, as `docker load` could bring one", async () => {
    await open([device("con", 5, 1)], LOOK);
    await using engine = await openEngine();
    const { plan } = await engine.plan({ command: ["true"], image: made.at(-1)?.tag ?? "" });
    const { examined } = await openDockerEngine({ stateDir: engine.stateDir, engineEnv: process.env });
    for (const name of ["corral/base", "corral/debian:bookworm"])
      expect(await examined.objection({ ...plan, image: { ...plan.image, name } })).toMatchObject({ image: name });
  });

  it("that every cell has anyway, or has in /dev, starts", async () => {
    const nodes = [device("var/null", 1, 3), device("var/random", 1, 8), device("dev/console", 5, 1)];
    const project = await open([dir("var"), dir("dev"), ...nodes], `${LOOK}; /bin/busybox ls /dev/console`);
    const result = await project.run("w");
    expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe("mine\ntmpfs\ntmpfs\nproc\n1\n");
  });
});

describe("an image's configuration", () => {
  const ODD = {
    User: "nobody-here:nor-there",
    StopSignal: "SIGNONSENSE",
    WorkingDir: "/w",
    ExposedPorts: { "80/tcp": {}, "1-65535/udp": {} },
    OnBuild: ["RUN touch /out/built"],
    Healthcheck: { Test: ["CMD", "/bin/busybox", "touch", "/out/health"], Interval: 1e9, StartInterval: 1e9 },
  };
  const LOADER = [
    "LD_PRELOAD=/out/l.so",
    "LD_LIBRARY_PATH=/out",
    "LD_AUDIT=/out/l.so",
    "GLIBC_TUNABLES=glibc.malloc.check=3",
  ];
  it.each(["", "out:.", "/out:/data:/bin"])(
    "with the PATH `%s`, and names and places that mean nothing, leads no program of Corral's elsewhere",
    async (path) => {
      const script = `${LOOK}; /bin/busybox pwd; /bin/busybox id -u; /bin/busybox sleep 2; /bin/busybox ls /out`;
      const project = await open([link("w", "/../../out")], script, {
        ...ODD,
        Env: [`PATH=${path}`, ...LOADER],
      });
      for (const name of ["sh", "busybox", "cat", "sleep", "head", "stat"])
        writeFileSync(join(project.dir, "out", name), "#!/bin/busybox sh\n/bin/busybox touch /out/ran-it\n", {
          mode: 0o755,
        });
      const result = await project.run("w");
      expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe(
        "mine\ntmpfs\ntmpfs\nproc\n1\n/\n65532\nbusybox\ncat\nhead\nsh\nsleep\nstat\n",
      );
      expect(await project.traces()).toEqual([]);
    },
  );

  const anonymous = async ({ docker }: ProjectFixture): Promise<string[]> =>
    ((await docker.listVolumes({ filters: { label: ["com.docker.volume.anonymous"] } })).Volumes ?? []).map(
      ({ Name }) => Name,
    );

  // A place below another one would be in that one's memory.
  const granted = [[["/data", "/tmp", "/home", "/etc", "/dev/shm", "/v:ro", "/v,size=1g"]], [["/tmp/inner/deep"]]];
  it.each(isAgain() ? granted.slice(0, 1) : granted)(
    "with a VOLUME at each of %j is a place in memory at most",
    async (paths) => {
      const volumes = Object.fromEntries(paths.map((path) => [path, {}]));
      const project = await open([dir("v")], LOOK, { Volumes: volumes });
      const before = await anonymous(project);
      const result = await project.run("w");
      expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe("mine\ntmpfs\ntmpfs\nproc\n1\n");
      expect(await project.traces()).toEqual([]);
      await expect.poll(async () => (await anonymous(project)).filter((name) => !before.includes(name))).toEqual([]);
    },
  );

  it("with a VOLUME where a cell has none is refused, and each is named", async () => {
    const odd = ["/", "/proc", "x/y"];
    const project = await open([], LOOK, {
      Volumes: Object.fromEntries(["/data/inner", ...odd].map((path) => [path, {}])),
    });
    const { status, violations } = await project.run("w");
    expect(status).toBe("refused");
    expect(violations.map(({ code }) => code).toSorted()).toEqual(["IMAGE_REFUSED", "MOUNT_RESERVED"]);
    for (const path of odd)
      expect(JSON.stringify(violations)).toContain(JSON.stringify(JSON.stringify(path)).slice(1, -1));
    expect(await project.traces()).toEqual([]);
  });
});
