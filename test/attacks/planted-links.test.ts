import { chown, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openProject, type ProjectSpec, sh, writable } from "../run/project-fixture.ts";

const CANARY = "from-outside-the-sandbox";
let outside: string;

beforeEach(async () => {
  outside = await mkdtemp(join(tmpdir(), "corral-outside-"));
  await mkdir(join(outside, "sub"));
  await writeFile(join(outside, "sub/note"), CANARY);
});

afterEach(async () => {
  await rm(outside, { recursive: true, force: true });
});

/** Plants links to the host, and asks for what stands behind them, in every way that there is. */
const PLANT = sh(`outside=$(jq -r .)
  ln -s "$outside" /work/dir; ln -s "$outside/sub/note" /work/file; ln -s /etc/passwd /work/passwd; ln -s /work/file /work/twice
  mkfifo /work/fifo
  for path in /work/file /work/dir/sub/note /work/passwd /work/twice /work/fifo /work/dir; do
    corral-call reader --attach "$path=x" > /work/out 2>&1; echo "attach $path $?"; cat /work/out
  done
  corral-call inheritor --allow-read /work/dir > /work/out 2>&1; echo "narrow $?"; cat /work/out
  corral-call inheritor --allow-read /work/dir/sub > /work/out 2>&1; echo "narrow below $?"; cat /work/out
  corral-call inheritor --allow-write /work/dir/sub > /work/out 2>&1; echo "narrow to write $?"; cat /work/out
  corral-call peek > /work/out 2>&1; echo "mount $?"; cat /work/out`);

const SPEC: ProjectSpec = {
  workers: {
    planter: {
      command: PLANT,
      sandbox: { zones: [writable("work")] },
      calls: ["reader", "inheritor", "peek"],
      limits: { timeout: "1m" },
    },
    reader: { command: sh("cat /attachments/*") },
    inheritor: {
      command: sh("ls -R /work; cat /work/dir/note /work/dir/sub/note; echo x > /work/dir/sub/new"),
      sandbox: { inherit: true },
    },
    peek: { command: sh("ls /work/dir; cat /work/dir/sub/note"), sandbox: { allow_read: ["/work/dir/sub"] } },
  },
  zones: { work: "rw" },
};

describe("a link that a worker planted in its writable mount", () => {
  it("leads nothing on the host anywhere, neither an attachment nor a mount of a called worker", async () => {
    await using project = await openProject(SPEC);
    const result = await project.run("planter", { input: outside });
    expect(result, result.stderr).toMatchObject({ status: "succeeded" });
    expect(JSON.stringify(result)).not.toContain(CANARY);
    expect(JSON.stringify(result)).not.toContain("root:x:0");
    const outcomes = result.stdout.split("\n").filter((line) => /^(attach|narrow|mount) .*\d+$/.test(line));
    expect(outcomes).toHaveLength(10);
    for (const outcome of outcomes) expect(outcome).toMatch(/ 126$/);
    expect(result.calls.map(({ status }) => status)).toEqual(Array(10).fill("refused"));
    expect(await readFile(join(outside, "sub/note"), "utf8")).toBe(CANARY);
    expect(await project.traces()).toEqual([]);
  });

  it("does not lead a later run of the project anywhere either", async () => {
    await using project = await openProject(SPEC);
    await symlink(outside, join(project.dir, "work/dir"));
    const result = await project.run("peek");
    expect(result).toMatchObject({
      status: "refused",
      violations: [{ code: "MOUNT_SOURCE_REFUSED", path: "/work/dir/sub" }],
    });
    expect(result.error?.message).not.toContain(outside);
  });

  it("does not lead anywhere in place of the writable folder itself", async () => {
    await using project = await openProject(SPEC);
    await chown(outside, 65532, 65532);
    await rm(join(project.dir, "work"), { recursive: true });
    await symlink(outside, join(project.dir, "work"));
    expect(await project.run("planter")).toMatchObject({
      status: "refused",
      violations: [{ code: "MOUNT_SOURCE_REFUSED" }],
    });
  });
});
