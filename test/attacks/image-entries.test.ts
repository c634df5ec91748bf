import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { type Header, pack } from "tar-stream";
import { afterAll, describe, expect, it } from "vitest";
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

/** A project whose worker `w` has an image of these entries and a static shell, and nothing else. */
async function open(entries: readonly Entry[], script: string, changes: readonly string[] = []) {
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
  const tar = pack();
  tar.entry({ name: "bin", type: "directory", mode: 0o755 });
  tar.entry({ name: "bin/busybox", mode: 0o755 }, readFileSync(join(gates, digest, "busybox")));
  for (const entry of entries) tar.entry({ mode: 0o755, ...entry }, entry.type === "file" ? "image\n" : "");
  tar.finalize();
  const asked = { repo: tag, ...(changes.length === 0 ? {} : { changes: changes.join("\n") }) };
  const answer = await project.docker.importImage(tar as unknown as string, asked);
  await new Promise((done) => answer.resume().once("end", done));
  made.push({ docker: project.docker, tag });
  return project;
}

const dir = (name: string): Entry => ({ name, type: "directory" });
const device = (name: string, devmajor: number, devminor: number): Entry => ({
  name,
  type: "character-device",
  mode: 0o666,
  devmajor,
  devminor,
});

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
  it.each(isAgain() ? refused.slice(0, 6) : refused)("%s, is refused and named", async (text, entries) => {
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

  it("that every cell has anyway, or has in /dev, starts", async () => {
    const nodes = [device("var/null", 1, 3), device("var/random", 1, 8), device("dev/console", 5, 1)];
    const project = await open([dir("var"), dir("dev"), ...nodes], `${LOOK}; /bin/busybox ls /dev/console`);
    const result = await project.run("w");
    expect(result.stdout, JSON.stringify(result.violations ?? result.error)).toBe("mine\ntmpfs\ntmpfs\nproc\n1\n");
  });
});
