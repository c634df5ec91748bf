import { mkdir, readdir, readFile, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { InboxFolder } from "../../src/inbox/inbox-folder.ts";
import { currentOwner, loadSealKey } from "../../src/state/owner.ts";
import { projectMark, statePaths } from "../../src/state/state-dir.ts";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

let project: CliProject | null = null;
afterEach(async () => {
  await project?.[Symbol.asyncDispose]();
  project = null;
});

async function open(approval: object = {}): Promise<CliProject> {
  project = await cliProject({
    yaml: {
      version: 1,
      sandbox: { paths: { out: { root: "out", mode: "rw", stage: true } } },
      approval: { timeout: "60s", ...approval },
    },
    workers: {
      asks: {
        image: "corral/base",
        command: sh("cat > /out/$(cat /proc/sys/kernel/random/uuid)"),
        sandbox: { inherit: true },
      },
    },
    folders: ["out"],
  });
  return project;
}
const listed = async (p: CliProject, ...more: string[]) =>
  JSON.parse((await p.corral(["approvals", "ls", "--json", ...more])).stdout).approvals as {
    id: string;
    digest: string;
  }[];
const waiting = async (p: CliProject, count = 1) => {
  await expect.poll(() => listed(p), { timeout: 30_000 }).toHaveLength(count);
  return await listed(p);
};

describe("corral approvals", () => {
  it("decides on what a shell that no user sits at asks at its end", async () => {
    const p = await open();
    const stdin = "echo from the shell > /out/shell\n";
    const running = p.start(["shell", "asks", "--ask-elsewhere"], { stdin });
    const [{ id = "" } = {}] = await waiting(p);
    expect(await p.corral(["approvals", "decide", id, "once"])).toMatchObject({ status: 0 });
    expect(await running.ended).toMatchObject({ status: 0, stderr: expect.stringContaining(`decide ${id}`) });
    expect(await readFile(join(p.dir, "out/shell"), "utf8")).toBe("from the shell\n");
    expect(await p.corral(["shell", "asks"], { stdin: "echo more >> /out/shell\n" })).not.toMatchObject({ status: 0 });
    expect(await readFile(join(p.dir, "out/shell"), "utf8")).toBe("from the shell\n");
  });

  it("shows what waits, decides on it as it was shown, and keeps who decided", async () => {
    const p = await open();
    expect(await p.corral(["approvals"])).toMatchObject({ status: 0, stderr: "No question waits.\n" });
    expect(await readdir(p.stateDir)).not.toContain("inbox");
    const running = p.start(["run", "asks", "--ask-elsewhere"], { stdin: "text\n" });
    const [{ id = "", digest = "" } = {}] = await waiting(p);
    expect((await p.corral(["approvals"])).stdout).toMatch(new RegExp(`^ID .*\n${id}  asks +write in /out/`));
    const { stdout } = await p.corral(["approvals", "show", id.slice(0, 6)]);
    expect(stdout).toContain("create /out/");
    expect(stdout).toContain(digest);
    const wrong = await p.corral(["approvals", "decide", id, "once", "--digest", "0".repeat(64), "--json"]);
    expect(wrong).toMatchObject({ status: 1, stdout: expect.stringContaining("QUESTION_CHANGED") });
    expect((await p.corral(["approvals", "decide", id, "yes"])).status).toBe(2);
    // There is no terminal.
    expect((await p.corral(["approvals", "decide", id])).status).toBe(2);
    expect(await p.corral(["approvals", "decide", id, "once", "--digest", digest])).toMatchObject({ status: 0 });
    expect(await running.ended).toMatchObject({
      status: 0,
      stderr: expect.stringContaining(`Answer with: corral approvals decide ${id}`),
    });
    const blind = await p.corral(["approvals", "decide", "latest", "once"]);
    expect(blind).toMatchObject({ status: 2, stderr: expect.stringContaining("--digest") });
    const again = await p.corral(["approvals", "decide", "latest", "no", "--digest", digest, "--json"]);
    expect(again).toMatchObject({ status: 1, stdout: expect.stringContaining("ALREADY_DECIDED") });
    expect((await p.corral(["approvals", "ls", "--decided"])).stdout).toMatch(/approved +\S+ +20/);
    const { stdout: trail } = await p.corral(["audit", "--json"]);
    expect(trail).toMatch(/"outcome":"approved".*with `corral approvals`.*"by":"\w+"/);
    expect(await p.corral(["approvals", "show", "../../x"])).toMatchObject({ status: 2 });
  });

  it("says in its JSON whether there are more than it lists", async () => {
    const p = await open();
    const inbox = join(statePaths(p.stateDir).inbox, projectMark(p.dir));
    await mkdir(inbox, { recursive: true, mode: 0o700 });
    const folder = new InboxFolder({ dir: inbox, key: await loadSealKey(p.stateDir), self: currentOwner() });
    const question = {
      run: "00000000000a",
      root: "00000000000a",
      worker: "w",
      runs: 1,
      waiting: [{ run: "00000000000a", root: "00000000000a" }],
      operations: ["write" as const],
      paths: ["/out/a"],
    };
    const asked = { project: p.dir, askedAt: new Date().toISOString(), at: "board", question } as const;
    for (let count = 0; count < 100; count += 1) folder.post({ ...asked, timeoutMs: null, answers: ["once", "no"] });
    const ls = async () => JSON.parse((await p.corral(["approvals", "ls", "--json"])).stdout);
    const all = await ls();
    expect([all.approvals.length, all.more]).toEqual([100, false]);
    folder.post({ ...asked, timeoutMs: null, answers: ["once", "no"] });
    const cut = await ls();
    expect([cut.approvals.length, cut.more]).toEqual([100, true]);
  });

  it("decides on items of a fleet, each once", async () => {
    const p = await open();
    await mkdir(join(p.dir, "in"));
    for (const name of ["a", "b", "c"]) await writeFile(join(p.dir, "in", name), name);
    const args = [
      "map",
      "asks",
      "--over",
      "in/*",
      "--input",
      '{"of":"{name}"}',
      "--ask-elsewhere",
      "--concurrency",
      "3",
    ];
    const running = p.start(args);
    for (const { id } of await waiting(p, 3)) await p.corral(["approvals", "decide", id, "once"]);
    expect(await running.ended).toMatchObject({ status: 0 });
    expect(await readdir(join(p.dir, "out"))).toHaveLength(3);
    expect(await listed(p, "--decided")).toHaveLength(3);
  });

  it("has nothing of a command that nobody can be asked, and that says nothing else", async () => {
    const p = await open();
    expect(await p.corral(["run", "asks"])).toMatchObject({
      ...{ status: 126, stderr: expect.stringContaining("there is no terminal for the question") },
    });
    expect(await readdir(p.stateDir)).not.toContain("inbox");
  });

  it("has it if the project says so, until the time is over", async () => {
    const p = await open({ inbox: "wait", timeout: "2s" });
    expect(await p.corral(["run", "asks"])).toMatchObject({
      status: 126,
      stderr: expect.stringContaining("no answer came in time"),
    });
    expect(await listed(p, "--decided")).toMatchObject([{ outcome: "timed_out", by: null }]);
  });

  it("has nothing of a project whose inbox is closed, whatever the command says", async () => {
    const p = await open({ inbox: "closed" });
    expect(await p.corral(["run", "asks", "--ask-elsewhere"])).toMatchObject({ status: 126 });
    expect(await readdir(p.stateDir)).not.toContain("inbox");
  });

  it("withdraws a question when its command was interrupted or killed", async () => {
    const p = await open();
    for (const signal of ["SIGINT", "SIGKILL"] as const) {
      const running = p.start(["run", "asks", "--ask-elsewhere"]);
      const [{ id = "" } = {}] = await waiting(p);
      running.child.kill(signal);
      await running.ended;
      expect(await listed(p)).toEqual([]);
      expect((await p.corral(["approvals", "show", id])).stdout).toContain("no run waits for the answer any more");
      expect((await p.corral(["approvals", "decide", id, "once"])).status).toBe(1);
    }
    expect(await readdir(join(p.dir, "out"))).toEqual([]);
  });

  it("is kept and removed like all else that Corral keeps", async () => {
    const p = await open({ inbox: "wait", timeout: "1s" });
    await p.corral(["run", "asks"]);
    const [mark = ""] = await readdir(join(p.stateDir, "inbox"));
    const dir = join(p.stateDir, "inbox", mark);
    const old = new Date(Date.now() - 2 * 86_400_000);
    for (const name of await readdir(dir)) await utimes(join(dir, name), old, old);
    const kinds = async () => JSON.parse((await p.corral(["gc", "--json", "--older-than", "1d"])).stdout) as unknown;
    expect(JSON.stringify(await kinds())).toMatch(/"approvals".*\.question/);
    expect(await listed(p, "--decided")).toEqual([]);
    expect(await readFile(join(p.stateDir, "seal.key"))).toHaveLength(32);
  });
});
