import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type OpenedSession, openSession, type SessionRequest } from "../../../src/run/open-session.ts";
import { openProject, type ProjectFixture } from "../project-fixture.ts";

const never = new AbortController().signal;
const STAGED = {
  command: ["true"],
  sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved", stage: true }] },
  shell_rules: { default: "pre_approved" },
};
let project: ProjectFixture;

beforeAll(async () => {
  const direct = { ...STAGED, sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] } };
  project = await openProject({
    workers: { w: STAGED, direct },
    zones: { out: "rw" },
    files: { "out/kept.txt": "kept\n" },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

type Open = Extract<OpenedSession, { ok: true }>;

async function open(more: Partial<SessionRequest> & { readonly as?: string } = {}): Promise<Open> {
  const { as = "w", ...request } = more;
  const worker = project.corral.project.workers.get(as);
  if (worker === undefined) throw new Error("no such worker");
  const opened = await openSession({ worker, signal: never, ...request }, project.corral.environment);
  if (!opened.ok) throw new Error(JSON.stringify(opened.violations));
  return opened;
}

async function ran({ session }: Open, command: string): Promise<string> {
  const { stdout, stderr } = await session.exec({ command }, never);
  return stdout + stderr;
}

function snapshotsOf({ session }: Open) {
  if (session.snapshots === null) throw new Error("it takes none");
  return session.snapshots;
}

async function layers(): Promise<string[]> {
  const root = join(project.corral.stateDir, "snapshots");
  const [mark = ""] = await readdir(root);
  return await readdir(join(root, mark, "layers"));
}

describe("a snapshot of a session", () => {
  it("is what was written: the session goes on above it, forks know nothing of each other, and it goes back", async () => {
    await using a = await open();
    await ran(
      a,
      "echo one > /out/a; mkdir /out/d; echo x > /out/d/x; rm /out/kept.txt; sleep 4751 & echo memory > /tmp/m",
    );
    const asleep = await a.session.start({ command: "sleep 4752", hasInput: false, isBackground: true }, false, never);
    const first = await snapshotsOf(a).take("first");
    expect(first).toMatchObject({ name: "first", worker: "w", lacks: [] });
    expect((await asleep.ended).status).toBe("cancelled");
    expect(await ran(a, "cat /out/a; ls /tmp; echo two > /out/a; rm -r /out/d; ls /out")).toBe("one\na\n");
    const written = await a.session.runTool("write_file", { path: "/out/b", content: "tool" }, never);
    expect(written.ok).toBe(true);
    expect(await snapshotsOf(a).differences("first", never)).toEqual([
      { path: "/out/a", kind: "modify", type: "file", bytes: 4 },
      { path: "/out/b", kind: "create", type: "file", bytes: 4 },
      { path: "/out/d/x", kind: "delete", type: "file", bytes: null },
      { path: "/out/d", kind: "delete", type: "directory", bytes: null },
    ]);
    {
      await using fork = await open({ from: "first", name: "fork" });
      await using other = await open({ from: first.id });
      expect(await ran(fork, "cat /out/a /out/d/x; ls /out; echo fork > /out/a")).toBe("one\nx\na\nd\n");
      expect(await ran(other, "cat /out/a")).toBe("one\n");
      await fork.finish();
    }
    expect(await readFile(join(project.dir, "out/a"), "utf8")).toBe("fork\n");
    expect(await readdir(join(project.dir, "out"))).toEqual(["a", "d"]);
    await snapshotsOf(a).restore("first");
    expect(await ran(a, "cat /out/a; ls /out /out/d")).toBe("one\n/out:\na\nd\n\n/out/d:\nx\n");
    await expect(snapshotsOf(a).take("first")).rejects.toMatchObject({ code: "SNAPSHOT_NAME_TAKEN" });
    await expect(snapshotsOf(a).restore("none")).rejects.toMatchObject({ code: "UNKNOWN_SNAPSHOT" });
    await snapshotsOf(a).take(null);
    const settled = await a.finish();
    // The fork was applied before.
    expect(settled?.changes.map(({ path, outcome }) => [path, outcome])).toContainEqual(["/out/a", "conflict"]);
  });

  it("without a name goes with its session, and layers with the last that needs them", async () => {
    const { store } = { store: project.corral.environment.snapshots };
    expect((await store?.list())?.map(({ name }) => name)).toEqual(["first"]);
    expect(await layers()).toHaveLength(1);
    await store?.remove(({ name }) => name === "first");
    expect(await layers()).toEqual([]);
  });

  it("is the last one of a session that was not ended in order, which goes on from it", async () => {
    {
      await using a = await open({ name: "dev", keepsLast: true });
      await ran(a, "echo dev > /out/dev");
    }
    await using again = await open({ from: "dev", name: "dev", keepsLast: true });
    expect(await ran(again, "cat /out/dev; echo more >> /out/dev")).toBe("dev\n");
    await again.finish();
    expect(await readFile(join(project.dir, "out/dev"), "utf8")).toBe("dev\nmore\n");
    await again[Symbol.asyncDispose]();
    expect(await project.corral.environment.snapshots?.list()).toEqual([]);
  });

  it("is refused where nothing is staged, and a fork of another worker or policy too", async () => {
    await using direct = await open({ as: "direct" });
    await expect(snapshotsOf(direct).take(null)).rejects.toMatchObject({ code: "NOTHING_TO_SNAPSHOT" });
    await using a = await open();
    await ran(a, "echo y > /out/y");
    const { id } = await snapshotsOf(a).take(null);
    await expect(open({ as: "direct", from: id })).rejects.toMatchObject({ code: "SNAPSHOT_OF_ANOTHER" });
  });
});
