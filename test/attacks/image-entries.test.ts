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
  const replaced: readonly (readonly [what: string, entries: (host: string) => readonly Entry[]])[] = [
    ["/dev, a link to a folder of the host", (host) => [link("dev", `../../../../../../../../..${host}`)]],
    ["/proc and /sys, links to it", (host) => [link("proc", `../../../../../../../../..${host}`), link("sys", host)]],
    ["/etc, a link to it", (host) => [link("etc", `../../../../../../../../..${host}`)]],
    [
      "files of /etc, links to it",
      (host) => [
        dir("etc"),
        ...["hosts", "resolv.conf", "hostname"].map((name) => link(`etc/${name}`, `${host}/${name}`)),
      ],
    ],
    [
      "users and groups of /etc, links to it",
      (host) => [
        dir("etc"),
        link("etc/passwd", `${host}/passwd`),
        link("etc/group", `../../../../../../../../..${host}/group`),
      ],
    ],
    [
      "/dev, a file, and /sys, a FIFO",
      () => [
        { name: "dev", type: "file" },
        { name: "sys", type: "fifo" },
      ],
    ],
    ["/proc, a device", () => [device("proc", 1, 3)]],
  ];
  it.each(isAgain() ? replaced.slice(0, 3) : replaced)("%s, starts with the cell's own", async (_, entries) => {
    const host = mkdtempSync(join(tmpdir(), "host-"));
    const project = await open(entries(host), LOOK);
    const result = await project.run("w");
    expect(readdirSync(host)).toEqual([]);
    expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe("mine\ntmpfs\ntmpfs\nproc\n1\n");
    expect(await project.traces()).toEqual([]);
    rmdirSync(host);
  });

  const refused: readonly (readonly [text: string, entries: readonly Entry[]])[] = [
    ["a symbolic link at /tmp", [dir("var"), link("tmp", "var")]],
    ["a symbolic link at /home", [dir("var"), link("home", "../../../../../../../tmp")]],
    ["a symbolic link at /data", [dir("etc"), link("data", "/etc")]],
    ["a symbolic link at /.corral", [dir("x"), link(".corral", "/x")]],
    ["a symbolic link at /out", [link("out", "/data")]],
    ["a file at /.corral", [{ name: ".corral", type: "file" }]],
    ["a file at /data", [{ name: "data", type: "file" }]],
    ["a FIFO at /tmp", [{ name: "tmp", type: "fifo" }]],
    ["a device at /home", [device("home", 1, 3)]],
    ["a directory at /.corral/busybox", [dir(".corral"), dir(".corral/busybox")]],
    ["a symbolic link at /.corral/busybox", [dir(".corral"), link(".corral/busybox", "/bin/busybox")]],
  ];
  // Images are looked at before a driver has a part in it.
  it.each(isAgain() ? refused.slice(0, 1) : refused)("%s, is refused and named", async (text, entries) => {
    const project = await open(entries, LOOK);
    const result = await project.run("w");
    expect(result, `${result.stdout} ${JSON.stringify(result.error)}`).toMatchObject({
      status: "refused",
      violations: [{ code: "IMAGE_REFUSED", reason: expect.stringContaining(text) }],
    });
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

  const hidden: readonly (readonly [how: string, entries: readonly Entry[], named: string])[] = [
    ["by a name that ends a line", [device("con\r", 5, 1), device("con\u2028x", 5, 1)], "/con"],
    ["behind more harmless ones than are read", manyHarmless(), "more than 64 KiB of names"],
    ["beside a VOLUME", [dir("v"), dir("v2"), device("v2/con", 5, 1)], "/v2/con"],
  ];
  it.each(isAgain() ? [] : hidden)("hidden %s, is refused", async (_, entries, named) => {
    const project = await open(entries, LOOK, { Volumes: { "/v": {} } });
    const { status, violations } = await project.run("w");
    expect([status, violations]).toMatchObject(["refused", [{ code: "IMAGE_REFUSED" }]]);
    expect(JSON.stringify(violations)).toContain(named);
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

  const granted: readonly string[] = [
    "/data",
    "/tmp",
    "/home",
    "/tmp/inner/deep",
    "/etc",
    "/dev/shm",
    "/v:ro",
    "/v,size=1g",
  ];
  it.each(isAgain() ? granted.slice(0, 3) : granted)(
    "with a VOLUME at `%s` is a place in memory at most",
    async (path) => {
      const project = await open([dir("v")], LOOK, { Volumes: { [path]: {} } });
      const before = await anonymous(project);
      const result = await project.run("w");
      expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe("mine\ntmpfs\ntmpfs\nproc\n1\n");
      expect(await project.traces()).toEqual([]);
      await expect.poll(async () => (await anonymous(project)).filter((name) => !before.includes(name))).toEqual([]);
    },
  );

  it.each(isAgain() ? ["/data/inner"] : ["/data/inner", "/", "/proc", "x/y"])(
    "with a VOLUME at `%s` is refused",
    async (path) => {
      const project = await open([], LOOK, { Volumes: { [path]: {} } });
      const { status, violations } = await project.run("w");
      const code = path === "/data/inner" ? "MOUNT_RESERVED" : "IMAGE_REFUSED";
      expect([status, violations]).toMatchObject(["refused", [{ code }]]);
      expect(await project.traces()).toEqual([]);
    },
  );
});
