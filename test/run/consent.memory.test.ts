import { chown, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type OpenedSession, openSession } from "../../src/run/open-session.ts";
import { revokeLiveGrant } from "../../src/state/live-grants.ts";
import { currentOwner } from "../../src/state/owner.ts";
import { type Answer, type Person, personWho } from "./grants/person.ts";
import { memoryEngine } from "./memory-engine.ts";
import { openProject, type ProjectFixture, WORKER_UID } from "./project-fixture.ts";

const signal = new AbortController().signal;
const inherit = { command: ["w"], sandbox: { inherit: true } };

/** `asks` needs consent to be read, `never` is blocked, `open` is neither. */
const ZONES = {
  open: { path: "./open" },
  asks: { path: "./asks", mode: "rw", approval: { read: "ask", write: "pre_approved" } },
  never: { path: "./never", approval: { read: "blocked" } },
};

interface Opened extends AsyncDisposable {
  readonly project: ProjectFixture;
  readonly person: Person;
  /** What the command of a worker does. */
  work: () => Promise<void>;
  session(worker: string): Promise<OpenedSession & { ok: true }>;
}

async function opened(
  workers: Readonly<Record<string, object>>,
  answers: Answer[],
  zones: object = ZONES,
): Promise<Opened> {
  const engine = memoryEngine({ programs: { w: () => o.work().then(() => 0) } });
  const person = personWho(...answers);
  const files = { "open/a": "open", "asks/a": "asked", "asks/deep/b": "deep", "never/a": "never" };
  const project = await openProject(
    { workers: workers as never, sandbox: { zones }, files },
    { engine: engine.open, person },
  );
  await chown(join(project.dir, "asks"), WORKER_UID, WORKER_UID);
  const o: Opened = {
    project,
    person,
    work: async () => {},
    async session(name) {
      const { project: declared, environment } = project.corral;
      const worker = declared.workers.get(name);
      if (worker === undefined) throw new Error(`no worker ${name}`);
      const session = await openSession({ worker, signal }, environment);
      if (!session.ok) throw new Error(JSON.stringify(session.violations));
      return session;
    },
    [Symbol.asyncDispose]: () => project[Symbol.asyncDispose](),
  };
  return o;
}

const mountsOf = (project: ProjectFixture, worker: string): string[] =>
  project.planOf(worker).mounts.flatMap(({ origin, path }) => (origin === "sandbox" ? [path] : []));

describe("a mount whose reading asks", () => {
  it("is in no list, no tool and no cell before the user agreed, and then in all of them", async () => {
    await using o = await opened({ w: inherit }, ["no", "session"]);
    await using session = await o.session("w");
    const read = (path: string) => session.session.runTool("read_file", { path }, signal);
    expect(session.session.sandbox.mounts.map(({ path }) => path)).toEqual(["/open"]);
    expect((await read("/open/a")).ok).toBe(true);
    expect(o.person.asked).toEqual([]);
    const cellBefore = await session.session.cell(signal);
    expect(cellBefore.plan.mounts.map(({ path }) => path)).not.toContain("/asks");

    const denied = await read("/asks/a");
    expect(denied).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(denied.ok ? "" : denied.message).toContain("Readable paths: /open");
    expect(o.person.questions()).toEqual(["read /asks"]);
    expect(await read("/asks/deep/b")).toMatchObject({ ok: true, data: { content: "deep" } });
    expect((await read("/asks/a")).ok).toBe(true);
    // Its own consent to writing holds: nothing more is asked.
    expect((await session.session.runTool("write_file", { path: "/asks/n", content: "n" }, signal)).ok).toBe(true);
    expect(o.person.asked).toHaveLength(2);
    expect(session.session.sandbox.mounts.map(({ path }) => path)).toEqual(["/asks", "/open"]);
  });

  it("is read once where the user agreed to that, and is gone where it is taken back", async () => {
    await using o = await opened({ w: inherit }, ["once", "tree"]);
    await using session = await o.session("w");
    const read = () => session.session.runTool("read_file", { path: "/asks/a" }, signal);
    expect(await read()).toMatchObject({ ok: true, text: expect.stringContaining("for this one operation") });
    expect(session.session.sandbox.mounts.map(({ path }) => path)).toEqual(["/open"]);
    expect((await read()).ok).toBe(true);
    expect(o.person.questions()).toEqual(["read /asks", "read /asks"]);
    const [, grant] = o.project.corral.environment.grants.told;
    expect(grant).toMatchObject({ directory: "/asks", mode: "read", declared: true });

    const live = join(o.project.stateDir, "live");
    expect(await revokeLiveGrant(live, currentOwner(), grant?.id ?? "")).toBe(true);
    expect(await read()).toMatchObject({ ok: false, code: "GRANT_REVOKED" });
    expect(session.session.sandbox.mounts.map(({ path }) => path)).toEqual(["/open"]);
    expect(o.person.asked).toHaveLength(2);
  });

  it("is asked for before a command starts, which is refused without: also without a terminal", async () => {
    await using o = await opened({ w: inherit, v: inherit }, ["no", "session"]);
    const refused = await o.project.run("w");
    expect(refused).toMatchObject({ status: "refused", violations: [{ code: "READ_NOT_APPROVED" }] });
    expect(refused.violations[0]?.message).toContain(
      "reading '/asks' needs approval. It needs approval, which was denied",
    );
    expect((await o.project.run("v")).status).toBe("succeeded");
    expect(mountsOf(o.project, "v")).toEqual(["/asks", "/open"]);
    expect(o.person.asked.map(({ lastingOnly }) => lastingOnly)).toEqual([true, true]);

    const engine = memoryEngine({ programs: { w: () => 0 } });
    await using headless = await openProject(
      { workers: { w: inherit }, sandbox: { zones: ZONES }, files: { "open/a": "", "asks/a": "", "never/a": "" } },
      { engine: engine.open },
    );
    expect(await headless.run("w")).toMatchObject({ status: "refused", violations: [{ code: "READ_NOT_APPROVED" }] });
  });

  it("is not in a run that leaves it out, and nobody is asked", async () => {
    await using o = await opened({ w: { command: ["w"], sandbox: { allow_read: ["/open"] } } }, []);
    expect((await o.project.run("w")).status).toBe("succeeded");
    expect(o.person.asked).toEqual([]);
  });

  it("of a called worker opens it for its callers as well, in their views, by the names that each has", async () => {
    const child = { command: ["w"], sandbox: { paths: { p: { root: "./asks", mode: "rw" } } } };
    const w = { ...inherit, calls: ["child"] };
    const zones = { ...ZONES, asks: { ...ZONES.asks, stage: true } };
    await using o = await opened({ w, child }, ["tree"], zones);
    await using session = await o.session("w");
    const inChild = () => o.project.planOf("child").mounts.find(({ path }) => path === "/p")?.host ?? "none";
    o.work = () => writeFile(join(inChild(), "n"), "of the child");
    const called = await session.session.runTool("call_worker", { worker: "child" }, signal);
    expect(called).toMatchObject({ ok: true });
    expect(o.person.asked.map(({ paths, through }) => [paths, through])).toEqual([[["/p"], ["w", "child"]]]);
    expect(mountsOf(o.project, "child")).toEqual(["/p"]);
    const mount = session.session.sandbox.mounts.find(({ path }) => path === "/asks");
    expect(mount?.view?.origin).toBe(join(o.project.dir, "asks"));
    expect(await session.session.runTool("read_file", { path: "/asks/n" }, signal)).toMatchObject({
      text: "of the child",
    });
    expect(await readdir(join(o.project.dir, "asks"))).toEqual(["a", "deep"]);
  });

  it("is never opened where it is blocked, nor by a mount around it", async () => {
    const around = {
      all: { path: ".", at: "/all" },
      in: { path: "./never", at: "/all/never", approval: { read: "blocked" } },
    };
    await using o = await opened({ w: inherit }, ["session"]);
    await using session = await o.session("w");
    const refused = await session.session.runTool("read_file", { path: "/never/a" }, signal);
    expect(refused).toMatchObject({ ok: false, code: "GRANT_BLOCKED" });
    expect(o.person.asked).toEqual([]);
    await using p = await opened({ w: inherit }, ["session"], around);
    await using nested = await p.session("w");
    for (const path of ["/all/never/a", "/all/open/a"])
      expect(await nested.session.runTool("read_file", { path }, signal)).toMatchObject({ code: "GRANT_BLOCKED" });
    expect(p.person.asked).toEqual([]);
  });

  it("of the root form is the whole of it", async () => {
    const engine = memoryEngine({ programs: { w: () => 0 } });
    const person = personWho("tree");
    const root = { root: { root: "./data", readonly: true, approval: { read: "ask" } } };
    const spec = { workers: { w: inherit }, files: { "data/a": "A" }, yaml: { sandbox: root } };
    await using project = await openProject(spec, { engine: engine.open, person });
    expect((await project.run("w")).status).toBe("succeeded");
    expect(person.questions()).toEqual(["read /"]);
    expect(mountsOf(project, "w")).toEqual(["/project"]);
  });
});

describe("request_access", () => {
  it("gets what waits for consent before a command needs it, and says why not", async () => {
    await using o = await opened({ w: inherit }, ["no", "tree"]);
    await using session = await o.session("w");
    const ask = (path: string) => session.session.runTool("request_access", { path }, signal);
    expect(await ask("/asks/deep")).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(await ask("/asks")).toMatchObject({ ok: true, data: { path: "/asks", scope: "tree" } });
    expect(await ask("/asks")).toMatchObject({ ok: true, data: { scope: "had" } });
    expect(await ask("/elsewhere")).toMatchObject({ ok: false, code: "GRANT_NOT_DYNAMIC" });
    expect(o.person.asked).toHaveLength(2);
  });
});

describe("a mount that asks before a call", () => {
  const zones = (call: string) => ({ open: { path: "./open", approval: { call } } });
  const workers = { w: { ...inherit, calls: ["child"] }, child: { command: ["w"] } };

  it("is asked about with the input, whatever the call hands on", async () => {
    await using o = await opened(workers, ["no", "session"], zones("ask"));
    await using session = await o.session("w");
    const call = () => session.session.runTool("call_worker", { worker: "child", input: { a: 1 } }, signal);
    const denied = await call();
    expect(denied).toMatchObject({ ok: false, code: "CALL_NOT_APPROVED" });
    expect(denied.ok ? "" : denied.message).toContain("needs approval for a worker that sees /open: it was denied");
    expect(o.person.asked[0]).toMatchObject({ operations: ["call"], callee: "child", input: '{"a":1}', paths: [] });
    expect((await call()).ok).toBe(true);
  });

  it("lets nobody call where it is blocked, also by the worker's own word", async () => {
    await using o = await opened(workers, ["session"], zones("blocked"));
    await using session = await o.session("w");
    expect(await session.session.runTool("call_worker", { worker: "child" }, signal)).toMatchObject({ ok: false });
    const own = { command: ["w"], sandbox: { approval: { call: "blocked" } }, calls: ["child"] };
    await using p = await opened({ ...workers, w: own }, ["session"], zones("pre_approved"));
    await using alone = await p.session("w");
    const refused = await alone.session.runTool("call_worker", { worker: "child" }, signal);
    expect(refused.ok ? "" : refused.message).toContain("is blocked");
    expect([...o.person.asked, ...p.person.asked]).toEqual([]);
  });
});
