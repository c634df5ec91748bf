import fs from "node:fs";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ChangesetStore } from "../../src/changes/store/changeset-store.ts";
import { applyVerb } from "../../src/cli/changes/apply.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { type StagedFolder, stagedFolder, treeAt } from "../changes/staged-folder.ts";
import { type CliProject, cliProject } from "./cli-project.ts";

const ID = "0123456789ab";
const BEFORE = { "a.txt": "old\n", "b.txt": "old\n", "gone.txt": "x" };
const AFTER = { "a.txt": "new\n", "b.txt": "new\n", "new/deep/c.txt": "fresh\n" };

let project: CliProject;
let staged: StagedFolder;
let store: ChangesetStore;

beforeEach(async () => {
  project = await cliProject({ yaml: { version: 1 }, workers: {} });
  staged = stagedFolder(BEFORE, AFTER);
  store = new ChangesetStore(project.stateDir, { name: "this test", isDead: () => false });
  await store.keep({ ...staged.changeset(ID), project: fs.realpathSync(project.dir) }, "held");
});

afterEach(async () => {
  staged[Symbol.dispose]();
  await project[Symbol.asyncDispose]();
});

const changes = (...args: string[]) => project.corral(["changes", ...args]);
const tree = () => treeAt(staged.target);

describe("corral changes", () => {
  it("lists the project's changesets, or those of all projects", async () => {
    await keepForeign();
    const listed = await changes("ls");
    expect(listed).toMatchObject({ status: 0, stderr: "" });
    expect(listed.stdout).toMatch(
      /^ID +WORKER +CHANGES +CREATED\n0123456789ab +w +6 held +2026-11-22T00:00:00.000Z\n$/,
    );
    const all = JSON.parse((await changes("ls", "--all-projects", "--json")).stdout);
    expect(all.map(({ id }: { id: string }) => id).sort()).toEqual([ID, "ffffffffffff"]);
    expect(all[0]).toMatchObject({ counts: { held: 6 }, worker: "w", applying: false });
    expect((await changes("ls", "--project", "/")).stderr).toBe("No changes wait.\n");
  });

  it("shows each change, and the host's directories only in JSON", async () => {
    const { stdout, status } = await changes("show", ID);
    expect(status).toBe(0);
    expect(stdout).toMatch(/create directory +\/work\/new +- +held\n/);
    expect(stdout).toMatch(/modify +\/work\/a.txt +4 +held\n/);
    expect(stdout).not.toContain(staged.path);
    const shown = JSON.parse((await changes("show", ID, "--json")).stdout);
    expect(shown).toMatchObject({ id: ID, mounts: [{ path: "/work", host: staged.target }] });
    expect(shown.changes).toHaveLength(6);
  });

  it("shows the diff against what stands there now", async () => {
    fs.writeFileSync(join(staged.target, "b.txt"), "theirs");
    const { stdout } = await changes("diff", ID);
    expect(stdout).toContain("--- /work/a.txt\n+++ /work/a.txt\n@@ -1,1 +1,1 @@\n-old\n+new\n");
    expect(stdout).toContain("conflict: modify /work/b.txt: it was changed since the run began\n");
    const { diffs, notShown } = JSON.parse((await changes("diff", ID, "--json")).stdout);
    expect(notShown).toBe(0);
    expect(diffs.find(({ path }: { path: string }) => path === "/work/b.txt")).toMatchObject({
      verdict: { outcome: "conflict" },
    });
  });

  it("applies all of it with --yes, and forgets it", async () => {
    expect(await changes("apply", ID, "--yes")).toMatchObject({ status: 0, stdout: "6 applied\n", stderr: "" });
    expect(tree()).toEqual({ ...AFTER, new: null, "new/deep": null });
    expect((await changes("ls")).stderr).toBe("No changes wait.\n");
    const audit = await project.corral(["audit", "--json"]);
    const types = audit.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line).type);
    expect(types).toEqual(["approval", "changes_applying", "changes_applied"]);
  });

  it("applies only what is at or below a path, with the directories that this needs", async () => {
    expect(
      await changes("apply", ID, "--yes", "--only", "/work/new/deep/c.txt", "--only", "/work/gone.txt"),
    ).toMatchObject({
      status: 0,
      stdout: "4 applied; 2 wait\n",
    });
    expect(tree()).toEqual({
      "a.txt": "old\n",
      "b.txt": "old\n",
      new: null,
      "new/deep": null,
      "new/deep/c.txt": "fresh\n",
    });
    expect((await changes("show", ID)).stdout).toMatch(/modify +\/work\/a.txt +4 +held/);
    expect(await changes("apply", ID, "--yes", "--only", "/work/none")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("no change waits at /work/none"),
    });
  });

  it("leaves a conflict to wait, says so, and ends with 1", async () => {
    fs.writeFileSync(join(staged.target, "b.txt"), "theirs");
    const outcome = await changes("apply", ID, "--yes");
    expect(outcome).toMatchObject({
      status: 1,
      stdout: "5 applied, 1 conflict; 1 wait\n",
      stderr: "conflict: /work/b.txt: it was changed since the run began\n",
    });
    expect(tree()).toMatchObject({ "a.txt": "new\n", "b.txt": "theirs" });
    const again = JSON.parse((await changes("apply", ID, "--yes", "--json")).stdout);
    expect(again).toMatchObject({ left: 1, changes: [{ path: "/work/b.txt", outcome: "conflict" }] });
  });

  it("denies in the usual words if nobody can be asked and nobody agreed", async () => {
    expect(await changes("apply", ID)).toMatchObject({
      status: 1,
      stdout: "",
      stderr: expect.stringMatching(/6 not applied: the approval mode is interactive[\s\S]*Nothing was applied/),
    });
    expect(tree()).toEqual(BEFORE);
    const records = (await project.corral(["audit", "--json", "--type", "approval"])).stdout;
    expect(records).toContain('"outcome":"denied"');
  });

  it("asks by the project's rules first, and by its mode: --yes is no way round a rule that denies", async () => {
    await withApproval({
      mode: "auto_deny",
      rules: [
        { operation: "delete", decide: "deny", why: "keep it" },
        { paths: ["/work/a.txt"], decide: "approve" },
      ],
    });
    expect(await changes("apply", ID)).toMatchObject({ status: 1, stdout: expect.stringMatching(/1 applied/) });
    expect(tree()).toEqual({ ...BEFORE, "a.txt": "new\n" });
    const agreed = await changes("apply", ID, "--yes", "--json");
    expect(agreed.status).toBe(1);
    const applied = JSON.parse(agreed.stdout);
    expect(applied.left).toBe(1);
    expect(applied.changes.filter(({ outcome }: { outcome: string }) => outcome === "denied")).toEqual([
      expect.objectContaining({ path: "/work/gone.txt", reason: expect.stringContaining("keep it") }),
    ]);
    expect(tree()).toEqual({ ...AFTER, new: null, "new/deep": null, "gone.txt": "x" });
  });

  it.each([
    [{ mode: "approve_all" }, [], 0, "new\n"],
    [{ mode: "auto_deny" }, [], 1, "old\n"],
    [{ mode: "auto_deny" }, ["--approve", "approve_all"], 0, "new\n"],
    [{ mode: "approve_all" }, ["--approve", "auto_deny"], 1, "old\n"],
  ])("agrees or denies as the mode says: %j %j", async (approval, args, status, content) => {
    await withApproval(approval);
    expect((await changes("apply", ID, ...args)).status).toBe(status);
    expect(tree()["a.txt"]).toBe(content);
  });

  it("writes down as discarded only what was not applied before", async () => {
    await changes("apply", ID, "--yes", "--only", "/work/a.txt");
    await changes("discard", ID);
    const records = (await project.corral(["audit", "--json", "--type", "changes_discarded"])).stdout;
    expect(records).toContain('"count":5');
    expect(records).not.toContain("a.txt");
  });

  it("discards one, or all of the project and no other", async () => {
    await keepForeign();
    expect(await changes("discard", "--all")).toMatchObject({ status: 2, stderr: expect.stringContaining("--yes") });
    expect(await changes("discard", "--all", "--yes")).toMatchObject({ status: 0, stdout: `discarded ${ID}\n` });
    expect(await changes("discard", "ffffffffffff", "--json")).toMatchObject({
      status: 0,
      stdout: '{"discarded":["ffffffffffff"]}\n',
    });
    expect(tree()).toEqual(BEFORE);
    expect(await store.list()).toEqual([]);
  });

  it.each([
    ["show", "nothing"],
    ["diff", "ffffffffffff"],
    ["apply", "../changes", "--yes"],
    ["discard", "ffffffffffff"],
    ["discard"],
    ["discard", ID, "--all"],
  ])("takes wrong usage for that: %s %s %s", async (...args) => {
    expect(await changes(...args.filter(Boolean))).toMatchObject({ status: 2, stdout: "" });
  });

  it("applies several, or all of the project, in the order in which they were made; what fails stops none of the others", async () => {
    using second = stagedFolder({ a: "1" }, { a: "2" });
    const [later, foreign] = ["111111111111", "ffffffffffff"];
    const createdAt = "2026-11-23T00:00:00.000Z";
    await store.keep({ ...second.changeset(later), project: fs.realpathSync(project.dir), createdAt }, "held");
    await keepForeign();
    fs.writeFileSync(join(staged.target, "b.txt"), "theirs");
    for (const wrong of [[], [ID, "--all"], ["--all", "--only", "/work/a.txt"], [ID, later, "--only", "/work/a.txt"]])
      expect((await changes("apply", "--yes", ...wrong)).status, wrong.join(" ")).toBe(2);
    const all = await changes("apply", "--all", "--yes", "--json");
    expect(all.status, all.stderr).toBe(1);
    expect(JSON.parse(all.stdout)).toMatchObject([
      { id: ID, left: 1 },
      { id: later, left: 0 },
    ]);
    expect(treeAt(second.target)).toEqual({ a: "2" });
    expect((await changes("ls", "--all-projects")).stdout).toContain(foreign);
    await changes("discard", ID);
    expect((await changes("apply", "--all", "--yes")).stderr).toBe("No changes wait.\n");
  });

  it("leaves alone what another process works on", async () => {
    const owner = join(project.stateDir, "changes", ID, "owner");
    fs.writeFileSync(owner, `0123456789abcdef\n${liveOwner()}\n`);
    expect(await changes("apply", ID, "--yes")).toMatchObject({
      status: 1,
      stderr: `corral: another process is working on changeset ${ID}\n`,
    });
    expect(tree()).toEqual(BEFORE);
  });

  it("finishes first what an interrupted corral had begun to apply, and says so", async () => {
    const onStep = (step: string): void => {
      if (step === "note what is done") throw new Error("killed");
    };
    await expect(store.applyKept(ID, new Set([0, 1, 2, 3, 4, 5]), { onStep })).rejects.toThrow("killed");
    expect(await changes("ls")).toMatchObject({
      status: 0,
      stderr: `corral: finished applying changeset ${ID}, which was interrupted: 6 applied\nNo changes wait.\n`,
    });
    expect(tree()).toEqual({ ...AFTER, new: null, "new/deep": null });
  });

  it("shows what cannot be read, and can discard it", async () => {
    fs.writeFileSync(join(project.stateDir, "changes", ID, "state.json"), "{");
    const listed = await changes("ls");
    expect(listed.stdout).toContain("cannot be read");
    expect(listed.stderr).toContain("state.json: it is not JSON");
    expect(await changes("discard", ID)).toMatchObject({ status: 0 });
  });
});

describe("corral changes apply at a terminal", () => {
  it.each([
    [["\u001b[B", "\r"], 0, "new\n"],
    [["\r"], 1, "old\n"],
    [["\u0003"], 130, "old\n"],
  ])("asks for each file, with the diff; the keys %j end with %i", async (keys, status, content) => {
    const { terminal, stdin, stderr } = fakeTerminal();
    const left = [...keys];
    const typed = setInterval(() => stderr().includes("Apply it?") && stdin.write(left.shift() ?? ""), 50);
    try {
      expect(await applyVerb([ID], { project: project.dir, only: ["/work/a.txt"] }, terminal)).toBe(status);
    } finally {
      clearInterval(typed);
    }
    expect(stderr()).toContain("+new");
    expect(stderr()).toContain("File 1 of 1: modify, +1 -1. Apply it?");
    expect(fs.readFileSync(join(staged.target, "a.txt"), "utf8")).toBe(content);
  });
});

const DOWN = "\u001b[B";
/** On one file; and on those that were not shown. */
const QUESTION = /Apply it\?|without having seen all of it\?/;

describe("file by file, corral changes apply", () => {
  /** Presses the next keys at each new question. */
  async function answering(answers: readonly (readonly string[])[], options: object, onQuestion = (_: number) => {}) {
    const { terminal, stdin, stdout, stderr } = fakeTerminal();
    let asked = 0;
    let keys: string[] = [];
    const typed = setInterval(() => {
      const questions = stderr().split("◆ ").length - 1;
      if (keys.length > 0) stdin.write(keys.shift() ?? "");
      else if (questions > asked && stderr().split(QUESTION).length > asked + 1) {
        asked += 1;
        onQuestion(asked);
        keys = [...(answers[asked - 1] ?? ["\u0003"])];
      }
    }, 60);
    try {
      const named = "all" in options ? [] : [ID];
      return {
        status: await applyVerb(named, { project: project.dir, only: [], ...options }, terminal),
        stdout,
        stderr,
      };
    } finally {
      clearInterval(typed);
    }
  }

  it("applies what was chosen, and the rest waits", async () => {
    // By name: a.txt and b.txt, then the new file, then the deletion.
    const { status, stdout } = await answering([["\r"], [DOWN, "\r"], ["\r"], ["\r"]], {});
    expect(status).toBe(1);
    expect(stdout()).toMatch(/^1 applied, 3 held; 5 wait\n$/);
    const now = tree();
    expect(Object.keys(now).toSorted().length).toBeGreaterThan(0);
    const changed = (["a.txt", "b.txt"] as const).filter((name) => now[name] === "new\n");
    const others = [now["gone.txt"] === undefined, now["new/deep/c.txt"] !== undefined].filter(Boolean);
    expect(changed.length + others.length).toBe(1);
  });

  it("applies what was not shown only after a second question, which names it", async () => {
    const { status, stdout, stderr } = await answering([[DOWN, DOWN, "\r"], ["\r"], ["\u0003"]], {});
    expect([status, stdout()]).toEqual([130, ""]);
    const names = stderr()
      .split("\n")
      .filter((line) => / {2}┊ \/work\/\S+ \+\d+ -\d+$/.test(line));
    expect(names).toHaveLength(3);
    expect(stderr()).toContain("Apply the 3 files above without having seen all of it?");
    expect(tree()).toMatchObject({ "a.txt": "old\n" });
  });

  it("refuses a changeset that is not the one that was agreed to with all the rest", async () => {
    using second = stagedFolder({ a: "1" }, { a: "2" });
    const later = "111111111111";
    const createdAt = "2026-11-23T00:00:00.000Z";
    await store.keep({ ...second.changeset(later), project: fs.realpathSync(project.dir), createdAt }, "held");
    const record = join(project.stateDir, "changes", later, "changeset.json");
    const exchange = () =>
      fs.writeFileSync(
        record,
        fs.readFileSync(record, "utf8").replaceAll('"w"', '"v"').replace('"size":1', '"size":9'),
      );
    const { status, stderr } = await answering(
      [
        [DOWN, DOWN, DOWN, "\r"],
        [DOWN, "\r"],
      ],
      { all: true },
      exchange,
    );
    expect(status).toBe(1);
    expect(stderr()).toContain("the changeset is not what was shown any more");
    expect(tree()).toMatchObject({ "a.txt": "new\n" });
    expect(treeAt(second.target)).toEqual({ a: "1" });
  });
});

describe("Ctrl-C at a question of corral changes apply --all", () => {
  it("stops: nothing more is asked or applied, and what was applied is reported", async () => {
    const folders = [1, 2].map((n) => stagedFolder({ "f.txt": "old\n" }, { "f.txt": `new ${n}\n` }));
    for (const [index, folder] of folders.entries()) {
      const changeset = { ...folder.changeset(`${index + 1}`.repeat(12)), project: fs.realpathSync(project.dir) };
      await store.keep({ ...changeset, createdAt: `2026-11-2${3 + index}T00:00:00.000Z` }, "held");
    }
    const { terminal, stdin, stdout, stderr } = fakeTerminal();
    // All files of the first changeset, also those that were not shown, and then Ctrl-C.
    const left = [[DOWN, DOWN, "\r"], [DOWN, "\r"], ["\u0003"]];
    let keys: string[] = [];
    let asked = 0;
    const typed = setInterval(() => {
      const questions = stderr().split(QUESTION).length - 1;
      if (keys.length === 0 && questions > asked) {
        keys = left.shift() ?? [];
        asked += 1;
      }
      stdin.write(keys.shift() ?? "");
    }, 100);
    try {
      expect(await applyVerb([], { project: project.dir, all: true, only: [] }, terminal)).toBe(130);
    } finally {
      clearInterval(typed);
    }
    expect(stdout()).toBe("6 applied\n");
    expect(stderr().split("+new").length - 1, "of the third changeset nothing is shown").toBe(2);
    expect(stderr()).toMatch(/corral: Stopped: 2 of 3 changesets were not applied. See `corral changes ls`.\n$/);
    expect(tree()).toMatchObject({ "a.txt": "new\n" });
    expect(folders.map(({ target }) => fs.readFileSync(join(target, "f.txt"), "utf8"))).toEqual(["old\n", "old\n"]);
    for (const folder of folders) folder[Symbol.dispose]();
  });
});

async function withApproval(approval: unknown): Promise<void> {
  fs.writeFileSync(join(project.dir, "corral.yaml"), JSON.stringify({ version: 1, approval }));
}

async function keepForeign(): Promise<void> {
  using other = stagedFolder({}, { f: "x" });
  await store.keep({ ...other.changeset("ffffffffffff"), createdAt: "2026-11-23T00:00:00.000Z" }, "denied");
}

/** This process, as Corral writes it down. */
function liveOwner(): string {
  const read = (path: string): string => fs.readFileSync(path, "utf8").trim();
  const machine = fs.existsSync("/etc/machine-id") ? read("/etc/machine-id") : "";
  const ticks = read("/proc/self/stat")
    .replace(/^.*\) /s, "")
    .split(" ")[19];
  const boot = read("/proc/sys/kernel/random/boot_id");
  return [
    `${machine}@${read("/proc/sys/kernel/hostname")}`,
    boot,
    fs.readlinkSync("/proc/self/ns/pid"),
    process.pid,
    ticks,
  ].join("|");
}

function fakeTerminal() {
  const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => stdin });
  const text = { stdout: "", stderr: "" };
  const sink = (name: "stdout" | "stderr") => {
    const stream = Object.assign(new PassThrough(), { isTTY: true, columns: 100, rows: 40 });
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      text[name] += chunk;
    });
    return stream;
  };
  const terminal = {
    env: { CORRAL_STATE_DIR: project.stateDir, NO_COLOR: "1" },
    cwd: project.dir,
    stdin,
    stdout: sink("stdout"),
    stderr: sink("stderr"),
    onStop: () => () => {},
    exit: () => {
      throw new Error("exit");
    },
  } as unknown as Terminal;
  return { terminal, stdin, stdout: () => text.stdout, stderr: () => text.stderr };
}
