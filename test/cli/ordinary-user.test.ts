import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chown, cp, mkdir, mkdtemp, realpath, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { pack } from "tar-stream";
import { afterAll, beforeAll, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/connect.ts";
import { nodeIn, OTHER } from "../other-user.ts";
import { PROGRAM } from "./program.ts";

const ROOT = join(dirname(PROGRAM), "../..");

let base: string;
let node: string;

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), "cu-"));
  // A copy that this user can reach, wherever the checkout is.
  node = nodeIn(base);
  for (const part of ["package.json", "dist/cli", "policies", "images"])
    await cp(join(ROOT, part), join(base, "c", part), { recursive: true });
  await mkdir(join(base, "p/workers"), { recursive: true });
  const network = "network: { allow: [a.example:443] }";
  await writeFile(
    join(base, "p/corral.yaml"),
    `version: 1\npolicy: default\nsandbox: { mode: direct, zones: {}, ${network} }\n`,
  );
  await writeFile(join(base, "p/workers/w.worker"), `---\ncommand: [id]\nsandbox: { ${network} }\n---\n`);
  await chown(base, OTHER, OTHER);
});
afterAll(async () => {
  await rm(base, { recursive: true, force: true });
});

async function asUser(...args: readonly string[]): Promise<string> {
  const { socketPath } = await connect(process.env);
  if (socketPath === null) throw new Error("an Engine over TCP has no group");
  const { gid } = await stat(await realpath(socketPath));
  const path = `PATH=${base}:/usr/bin`;
  const env = [`HOME=${base}`, `CORRAL_STATE_DIR=${join(base, "s")}`, `DOCKER_HOST=unix://${socketPath}`, path];
  const guise = [`--reuid=${OTHER}`, `--regid=${OTHER}`, `--groups=${gid}`, "env", "-i", ...env];
  const line = [...guise, node, join(base, "c", relative(ROOT, PROGRAM)), ...args];
  return await new Promise((resolve) => {
    execFile("setpriv", line, { cwd: join(base, "p") }, (_, stdout, stderr) => resolve(stdout + stderr));
  });
}

it("has an allow list, and is told by doctor and explain that a second container makes its network", async () => {
  expect(await asUser("doctor")).toMatch(/allow lists.*second container, of corral\/node/);
  expect(await asUser("run", "w")).toContain("uid=65532");
  expect(await asUser("explain", "w")).toMatch(/note: Corral does not run as root: .*second container/);
});

it("runs a command without a project at once: its private files are read, and what it writes is its own", async () => {
  await mkdir(join(base, "p/in"));
  await writeFile(join(base, "p/in/a"), "private\n", { mode: 0o600 });
  for (const path of ["p", "p/in", "p/in/a"]) await chown(join(base, path), OTHER, OTHER);
  await writeFile(join(base, "p/roots"), "of root\n");
  const script = "id -u; cat /in/a /roots; cp /in/a /out/b";
  expect(await asUser("run", "--ro", "in", "--ro", "roots", "--rw", "out", "--apply", "--", "sh", "-c", script)).toBe(
    `${OTHER}\nprivate\nof root\ncorral: changes: 1 applied\n`,
  );
  expect(await stat(join(base, "p/out/b"))).toMatchObject({ uid: OTHER, gid: OTHER });
  expect(await asUser("run", "--ro", "in", "--ro", "roots", "--", "cat", "/in/a")).toBe("private\n");
});

it("is held by the same: an image's devices and links, what a mount forbids, and what is said of sockets' memory", async () => {
  const { docker } = await connect(process.env);
  const tags = ["node", "link"].map((what) => `corral-test/ordinary-${what}-${process.pid}:1`) as [string, string];
  const [device, link] = [
    { name: "x", type: "character-device", devmajor: 10, devminor: 200 },
    { name: "roots", type: "symlink", linkname: "/etc/passwd" },
  ] as const;
  try {
    for (const [at, entry] of [device, link].entries()) {
      const tar = pack();
      tar.entry(entry);
      tar.finalize();
      const answer = await docker.importImage(tar as unknown as string, { repo: tags[at] ?? "" });
      await new Promise((done) => answer.resume().once("end", done));
    }
    expect(await asUser("run", "--image", tags[0], "--", "true")).toContain(
      "device nodes, which its programs could open: /x",
    );
    expect(await asUser("run", "--image", tags[1], "--ro", "roots", "--", "true")).toContain(
      "a symbolic link at /roots",
    );
  } finally {
    for (const tag of tags) await docker.getImage(tag).remove({ force: true });
  }
  const script = "grep ' /in ' /proc/self/mountinfo";
  expect(await asUser("run", "--ro", "in", "--", "sh", "-c", script)).toMatch(/ \/in ro,nosuid,nodev/);
  const isUnified = existsSync("/sys/fs/cgroup/cgroup.controllers");
  expect(await asUser("run", "--json", "--", "true")).toContain(
    `"socketMemory":"${isUnified ? "counted" : "not counted"}"`,
  );
});
