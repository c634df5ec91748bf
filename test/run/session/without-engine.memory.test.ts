import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { loadProject } from "../../../src/declarations/project.ts";
import type { RunEvent } from "../../../src/index.ts";
import type { EnginePort } from "../../../src/isolation/port/engine.ts";
import { EngineUnavailableError } from "../../../src/isolation/port/engine.ts";
import { toolFunctions } from "../../../src/library/tool-functions.ts";
import { type LaterCorral, openCorralLater } from "../../../src/run/open/corral.ts";
import { openSession } from "../../../src/run/open-session.ts";
import { run } from "../../../src/run/run.ts";
import { memoryEngine } from "../memory-engine.ts";
import { type ProjectSpec, writeProject } from "../project-fixture.ts";

const NEVER = new AbortController().signal;
const ANSWERS = [
  { calls: [{ read_file: { path: "/docs/a.txt" } }, { exec: { command: "id" } }] },
  { say: "I went on." },
];
const SPEC: ProjectSpec = {
  workers: {
    w: {
      command: ["true"],
      sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw", stage: true, approval: "pre_approved" }] },
      shell_rules: { default: "pre_approved" },
      calls: ["kid"],
    },
    kid: { command: ["true"], sandbox: {} },
    agent: {
      model: "script/s.yaml",
      tools: ["read_file", "exec"],
      sandbox: { zones: [{ name: "docs" }] },
      shell_rules: { default: "pre_approved" },
    },
  },
  zones: { docs: "ro", out: "rw" },
  files: { "docs/a.txt": "a document\n", "s.yaml": JSON.stringify(ANSWERS) },
};

let base: string;
let events: RunEvent[];
beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "cr-"));
  events = [];
  writeProject(join(base, "p"), SPEC);
});
afterEach(() => rm(base, { recursive: true, force: true }));

async function opened(open?: () => Promise<EnginePort>): Promise<LaterCorral> {
  const options = {
    stateDir: join(base, "s"),
    engineEnv: { DOCKER_HOST: `unix://${base}/none.sock` },
    emit: (event: RunEvent) => void events.push(event),
  };
  return await openCorralLater(await loadProject(join(base, "p")), options, ...(open === undefined ? [] : [open]));
}

async function sessionOf({ environment, project }: LaterCorral) {
  const worker = project.workers.get("w");
  if (worker === undefined) throw new Error("there is no worker w");
  const session = await openSession({ worker, signal: NEVER }, environment);
  if (!session.ok) throw new Error(JSON.stringify(session.violations));
  return session;
}

const troubles = () => events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));

describe("without an Engine", () => {
  it("file tools work, and their changes are applied; a command is refused with a reason that names no place of the host", async () => {
    await using corral = await opened();
    await using opening = await sessionOf(corral);
    const { session } = opening;
    const use = (tool: string, input: unknown) => session.runTool(tool, input, NEVER);
    expect(await use("read_file", { path: "/docs/a.txt" })).toMatchObject({ ok: true, text: "a document\n" });
    expect(await use("write_file", { path: "/out/b.txt", content: "b" })).toMatchObject({ ok: true });
    expect(await use("exec", { command: "id" })).toMatchObject({
      ok: false,
      code: "ENGINE_UNAVAILABLE",
      message: expect.stringMatching(/^(?!.*none\.sock).*tools for files need none/),
    });
    expect(await use("call_worker", { worker: "kid" })).toMatchObject({ ok: false, code: "ENGINE_TROUBLE" });
    expect(await use("list_files", { path: "/out" })).toMatchObject({
      ok: true,
      text: expect.stringMatching(/b\.txt/),
    });
    expect(await opening.finish()).toMatchObject({
      failure: null,
      changes: [{ path: "/out/b.txt", outcome: "applied" }],
    });
    expect(await readFile(join(base, "p/out/b.txt"), "utf8")).toBe("b");
    expect(troubles()[0]).toMatch(/none\.sock/);
    await expect(corral.ready()).rejects.toBeInstanceOf(EngineUnavailableError);
  });

  it("a program writes bytes, and any other client the same in Base64", async () => {
    await using corral = await opened();
    await using opening = await sessionOf(corral);
    const call = toolFunctions(["write_file"], opening.session);
    const bytes = Uint8Array.of(0, 255, 10, 13);
    expect(await call.write_file({ path: "/out/a.bin", content: bytes })).toMatchObject({
      ok: true,
      data: { bytes: 4 },
    });
    const base64 = { encoding: "base64", content: "AP8KDQ==" } as const;
    expect(await call.write_file({ path: "/out/b.bin", ...base64 })).toMatchObject({ ok: true });
    for (const content of ["AP8KDQ", "AP8KDR==", "!"])
      expect(await call.write_file({ path: "/out/c.bin", ...base64, content })).toMatchObject({ code: "BAD_INPUT" });
    expect(await call.write_file({ path: "/out/d.txt", content: "AP8KDQ==" })).toMatchObject({ data: { bytes: 8 } });
    await opening.finish();
    for (const name of ["a.bin", "b.bin"])
      expect(Uint8Array.from(await readFile(join(base, "p/out", name)))).toEqual(bytes);
  });

  it("an agent works with files, and learns that it has no commands", async () => {
    await using corral = await opened();
    const worker = corral.project.workers.get("agent");
    if (worker === undefined) throw new Error("there is no agent");
    const result = await run({ worker, signal: NEVER }, corral.environment);
    expect(result).toMatchObject({ status: "succeeded", output: "I went on." });
    const called = events.flatMap((event) =>
      event.type === "agent" && event.act.kind === "called" ? [[event.act.tool, event.act.code]] : [],
    );
    expect(called).toEqual([
      ["read_file", null],
      ["exec", "ENGINE_UNAVAILABLE"],
    ]);
  });
});

describe("an Engine that is opened with the first command", () => {
  it("is opened once, and only then; it is looked for again if there was none", async () => {
    let asked = 0;
    let isThere = false;
    const open = memoryEngine({ programs: {} }).open;
    await using corral = await opened(async () => {
      asked += 1;
      if (!isThere) throw new EngineUnavailableError("none yet", { reason: "refused", source: null, cause: null });
      return await open(join(base, "s"));
    });
    await using opening = await sessionOf(corral);
    const use = (tool: string, input: unknown) => opening.session.runTool(tool, input, NEVER);
    await use("read_file", { path: "/docs/a.txt" });
    expect(asked).toBe(0);
    expect(await use("call_worker", { worker: "kid" })).toMatchObject({ ok: false });
    expect(asked).toBe(1);
    isThere = true;
    await corral.ready();
    await corral.ready();
    expect(await use("call_worker", { worker: "kid" })).not.toMatchObject({ code: "ENGINE_TROUBLE" });
    expect(asked).toBe(2);
  });

  it("shows no command what turns out to be its own data", async () => {
    const own = join(base, "p/out");
    await mkdir(own, { recursive: true });
    const open = memoryEngine({ programs: {} }).open;
    await using corral = await opened(async () => {
      const port = await open(join(base, "s"));
      const withData: EnginePort = { ...port, hostPlaces: { data: [own], sockets: [] }, ofProject: () => withData };
      return withData;
    });
    await using opening = await sessionOf(corral);
    expect(await opening.session.runTool("exec", { command: "id" }, NEVER)).toMatchObject({
      ok: false,
      message: expect.stringMatching(/the Engine's data/),
    });
  });
});
