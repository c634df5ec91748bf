import { spawnSync } from "node:child_process";
import { chmod, chown, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "../cli/cli-project.ts";
import { makeHostFolder } from "../run/grants/host-folder.ts";

let project: CliProject | null = null;
let host = "";
afterEach(async () => {
  await project?.[Symbol.asyncDispose]();
  project = null;
  await rm(host, { recursive: true, force: true });
});

/** A worker that asks for directories while it runs; its commands begin with the functions `post` and `read`. */
async function open(script: (stateDir: string) => string): Promise<CliProject> {
  host = await makeHostFolder();
  for (const name of Array.from({ length: 20 }, (_, index) => `d${index}`)) {
    await mkdir(join(host, name));
    await chown(join(host, name), 65_532, 65_532);
  }
  const functions = `post() { curl -s --unix-socket "$CORRAL_SOCKET" -d "$2" "http://corral$1"; }
    read_file() { post /v1/tools/read_file '{"path":"'$1'"}'; }; SRC=${host}`;
  const workers: Record<string, unknown> = {};
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { inbox: { path: "inbox" }, out: { path: "out", mode: "rw" } } },
      approval: { timeout: "60s", inbox: "wait" },
    },
    workers,
    folders: ["inbox", "out", "workers"],
  });
  const worker = { command: sh(`${functions}\n${script(project.stateDir)}`), sandbox: { dynamic: true } };
  const { writeFile } = await import("node:fs/promises");
  await writeFile(join(project.dir, "workers/w.worker"), `---\n${JSON.stringify(worker)}\n---\n`);
  return project;
}
const waiting = async (p: CliProject): Promise<readonly { id: string }[]> =>
  JSON.parse((await p.corral(["approvals", "--json"])).stdout).approvals;

describe("a worker whose question waits", () => {
  it("finds nothing of the inbox, has no way to answer, and is not given its folder by a person who always agrees", async () => {
    const p = await open(
      (stateDir) => `(read_file $SRC/d0/x > /tmp/asked 2>&1) &
        sleep 2
        find / \\( -path /proc -o -path /sys \\) -prune -o \\( -name '*.question' -o -name '*.end' -o -name seal.key -o -name 'draft.*' \\) -print 2>/dev/null
        ls -la ${stateDir} ${stateDir}/inbox 2>&1 | grep -v 'No such file'
        for path in /v1/approvals /v1/approvals/latest/decision /v1/decision /v1/inbox; do
          post $path '{"answer":"tree","digest":"${"0".repeat(64)}"}' | grep -o '"code":"[A-Z_]*"\\|"outcome":"approved"'
        done
        for path in ${stateDir}/inbox ${stateDir} ${stateDir}/seal.key; do
          post /v1/tools/write_file '{"path":"'$path'/0.end","content":"x"}' | grep -o '"ok":true'
          for read in $path $path/seal.key; do read_file $read | grep -o '"ok":true'; done
        done
        wait; cat /tmp/asked`,
    );
    const running = p.start(["run", "w"]);
    // Whoever answers here says yes to all that is asked.
    let isOver = false;
    void running.ended.finally(() => {
      isOver = true;
    });
    const asked: string[] = [];
    while (!isOver) {
      for (const { id } of await waiting(p)) {
        const { stdout } = await p.corral(["approvals", "show", id]);
        asked.push(stdout);
        // Only after the worker has tried everything.
        if (!stdout.includes("/d0") || asked.length > 20) await p.corral(["approvals", "decide", id, "tree"]);
      }
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    const { stdout, stderr, status } = await running.ended;
    expect({ status, stderr }).toMatchObject({ status: 0 });
    expect(asked.join()).not.toContain(p.stateDir);
    const lines = stdout.trim().split("\n");
    expect(lines.slice(0, -1).filter((line) => !line.startsWith('"code":"'))).toEqual([]);
    expect(stdout).not.toContain('"outcome":"approved"');
    expect(await readdir(join(p.dir, "out"))).toEqual([]);
  });

  it("asks many questions at once, which are bounded and withdrawn with it", async () => {
    const p = await open(() => `for i in $(seq 0 19); do (read_file $SRC/d$i/x >> /tmp/$i 2>&1) & done; wait`);
    const running = p.start(["run", "w"]);
    await expect.poll(async () => (await waiting(p)).length, { timeout: 30_000 }).toBeGreaterThan(5);
    running.child.kill("SIGINT");
    await running.ended;
    expect(await waiting(p)).toEqual([]);
  });
});

describe("another user of the machine", () => {
  it.runIf(process.getuid?.() === 0)("reads no question, and gives no answer", async () => {
    const p = await open(() => "read_file $SRC/d0/x");
    const running = p.start(["run", "w"]);
    await expect.poll(async () => (await waiting(p)).length, { timeout: 30_000 }).toBe(1);
    const [{ id = "" } = {}] = await waiting(p);
    const [mark = ""] = await readdir(join(p.stateDir, "inbox"));
    const dir = join(p.stateDir, "inbox", mark);
    // Even if the state directory itself can be entered.
    await chmod(p.stateDir, 0o755);
    const script = `ls ${dir}; cat ${dir}/${id}.question; echo yes > ${dir}/${id}.end; ln -s /etc/passwd ${dir}/x`;
    const tried = spawnSync("sh", ["-c", script], { uid: 65_534, gid: 65_534, encoding: "utf8" });
    expect(tried.stdout).toBe("");
    expect(tried.stderr.match(/Permission denied|nonexistent/g)?.length).toBeGreaterThanOrEqual(4);
    await chmod(p.stateDir, 0o700);
    expect(await waiting(p)).toHaveLength(1);
    await p.corral(["approvals", "decide", id, "no"]);
    await running.ended;
  });
});
