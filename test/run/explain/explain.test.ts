import { mkdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { type ExplainedRun, explain } from "../../../src/run/explain/explain.ts";
import { openPreview } from "../../../src/run/open/preview.ts";
import { openProject, type ProjectFixture, sh, writable } from "../project-fixture.ts";

const rw = (name: string) => ({ name, mode: "rw" });
const zones = { out: "rw", logs: "rw", data: "ro", kept: "rw" } as const;

const workers = {
  top: {
    command: sh("corral-call middle"),
    calls: ["middle"],
    sandbox: { zones: [writable("out"), { name: "data" }] },
  },
  middle: {
    command: sh("corral-call bottom"),
    calls: ["bottom", "top"],
    sandbox: { allow_read: ["/data/sub", "/out"], allow_write: ["/out"], approval: "pre_approved" },
    limits: { memory: "100m" },
  },
  bottom: { command: sh("true"), sandbox: { zones: [{ name: "data" }] }, limits: { timeout: "5s" } },
  asks: { command: sh("true"), sandbox: { zones: [rw("logs")] }, calls: ["writes"] },
  writes: { command: sh("true"), sandbox: { zones: [rw("logs")] } },
  blocked: {
    command: sh("true"),
    sandbox: { zones: [{ ...rw("kept"), approval: { write: "pre_approved", delete: "blocked" } }] },
  },
  closed: { command: sh("true"), sandbox: { zones: [{ ...rw("kept"), approval: "blocked" }] } },
  greedy: {
    command: sh("true"),
    sandbox: { zones: [rw("data"), { name: "elsewhere" }], network: true },
    calls: ["bottom"],
  },
  imageless: {
    command: sh("true"),
    image: "nobody/nothing",
    sandbox: { zones: [{ name: "data" }] },
    calls: ["bottom"],
  },
  agent: { model: "anthropic/some-model", calls: ["bottom"], sandbox: { zones: [{ name: "data" }] } },
  asking: { command: sh("true"), sandbox: { dynamic: { within: ["./data", "../shared"], max: 3 } }, git: ["notes"] },
  gone: { command: sh("true"), sandbox: { zones: [{ name: "gone" }] } },
  roomy: { command: sh("true"), limits: { memory: "100g" } },
  callsRoomy: { command: sh("true"), calls: ["roomy"] },
  deep1: { command: sh("true"), calls: ["deep2"] },
  deep2: { command: sh("true"), calls: ["deep3"] },
  deep3: { command: sh("true"), calls: ["bottom"] },
};

let project: ProjectFixture;

beforeAll(async () => {
  project = await openProject({
    workers,
    zones: { ...zones, gone: "ro" },
    files: { "data/sub/a": "a" },
    yaml: {
      delegation: { max_depth: 3 },
      git: { repos: { notes: { url: "https://host.example/notes.git", at: "/out" } } },
    },
  });
  await rm(join(project.dir, "gone"), { recursive: true });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

type Mode = "interactive" | "approve_all" | "auto_deny";

async function explained(name: keyof typeof workers, approvalMode?: Mode): Promise<ExplainedRun> {
  const { corral, stateDir } = project;
  const mode = approvalMode === undefined ? {} : { approvalMode };
  const preview = await openPreview(corral.project, { stateDir, engineEnv: process.env, ...mode });
  const worker = corral.project.workers.get(name);
  if (worker === undefined) throw new Error(`no worker ${name}`);
  return (await explain(worker, null, preview)).tree;
}

const codes = (run: ExplainedRun | undefined) => run?.refused?.map(({ code }) => code) ?? null;

/** A plan without what only a run can know: its ids, and its own socket. */
function timeless(plan: Plan | null): unknown {
  if (plan === null) return null;
  const mounts = plan.mounts.filter(({ path }) => path !== "/.corral/socket");
  // Nobody has an input yet who only asks what would be.
  const { CORRAL_INPUT: _, ...env } = plan.env;
  return { ...plan, mounts, run: "", root: "", parent: "", env: { ...env, CORRAL_RUN: "" } };
}

describe("explain", () => {
  it("plans, for each run of the tree, the very container that the run then has", async () => {
    const tree = await explained("top");
    const result = await project.run("top");
    expect(result.stderr).toBe("");
    const runs = [tree, tree.calls[0], tree.calls[0]?.calls[0]];
    expect(runs.map((run) => run?.worker)).toEqual(["top", "middle", "bottom"]);
    for (const run of runs) {
      expect(run?.refused).toBeNull();
      expect(timeless(run?.plan ?? null)).toEqual(timeless(project.planOf(run?.worker ?? "")));
    }
  });

  it("says of each narrowing who did it", async () => {
    const middle = (await explained("top")).calls[0];
    const by = middle?.narrowings.map((one) => `${one.by}: ${one.kind} ${"path" in one ? one.path : ""}`);
    expect(by).toContain("top: mount /logs");
    expect(by).toContain("middle: mount /data");
    expect(middle?.narrowings).toContainEqual(
      expect.objectContaining({ by: "middle", kind: "limit", limit: "memoryBytes", to: 100 * 1024 ** 2 }),
    );
  });

  it("says of a limit that nobody's file names that its policy set it", async () => {
    const { narrowings } = await explained("bottom");
    const by = (limit: string) => narrowings.find((one) => one.kind === "limit" && one.limit === limit)?.by;
    expect([by("timeoutMs"), by("memoryBytes")]).toEqual(["bottom", "policy untrusted"]);
    expect((await explained("roomy")).refused).toMatchObject([
      { code: "LIMIT_TOO_LARGE", limit: "memoryBytes", by: "policy untrusted" },
    ]);
    expect((await explained("callsRoomy")).calls[0]?.refused).toMatchObject([
      { code: "LIMIT_TOO_LARGE", limit: "memoryBytes", by: "policy untrusted" },
    ]);
  });

  it("shows a call that comes back to a running worker as refused, and goes no further", async () => {
    const again = (await explained("top")).calls[0]?.calls[1];
    expect(again?.path).toEqual(["top", "middle", "top"]);
    expect(codes(again)).toContain("CALL_CYCLE");
    expect(again?.calls).toEqual([]);
  });

  it("shows calls that are too deep as refused", async () => {
    const third = (await explained("deep1")).calls[0]?.calls[0];
    expect(codes(third)).toBeNull();
    expect(codes(third?.calls[0])).toContain("CALL_TOO_DEEP");
  });

  it("names everything that is wrong with a sandbox at once", async () => {
    const greedy = await explained("greedy");
    expect(codes(greedy)?.toSorted()).toEqual(["MOUNT_NOT_AVAILABLE", "NETWORK_NOT_AVAILABLE", "WRITE_NOT_AVAILABLE"]);
    expect(greedy).toMatchObject({ sandbox: null, plan: null, calls: [] });
  });

  it("shows what a person would agree to, which the calls below are then not asked for again", async () => {
    const asks = await explained("asks");
    expect(asks.consent).toMatchObject({ paths: ["/logs"], decision: "asked" });
    expect(asks.plan?.mounts.find(({ path }) => path === "/logs")?.mode).toBe("rw");
    expect(asks.calls[0]?.consent).toBeNull();
    expect(asks.calls[0]?.plan?.mounts.find(({ path }) => path === "/logs")?.mode).toBe("rw");
    expect((await explained("writes")).consent?.decision).toBe("asked");
    expect((await explained("asks", "approve_all")).consent?.decision).toBe("approved");
  });

  it("says what the approval mode would deny", async () => {
    const asks = await explained("asks", "auto_deny");
    expect(asks).toMatchObject({ consent: { decision: "denied" }, refused: null });
    expect(asks.notes.join()).toContain("nothing of it would be applied");
  });

  it("says which mount is held back from writing, and why", async () => {
    const kept = (run: ExplainedRun) => run.plan?.mounts.find(({ path }) => path === "/kept");
    expect(kept(await explained("blocked"))).toMatchObject({ mode: "rw", staged: true });
    const blocked = await explained("closed");
    expect(kept(blocked)).toMatchObject({ mode: "ro", heldBack: "approval" });
    expect(blocked.notes.join()).toContain("/kept is read-only in the container");
  });

  it("looks at the calls of a worker whose image is missing, or that is an agent", async () => {
    const [imageless, agent] = [await explained("imageless"), await explained("agent")];
    expect(codes(imageless)).toEqual(["IMAGE_MISSING"]);
    expect(imageless.calls[0]?.plan).not.toBeNull();
    expect(agent).toMatchObject({ refused: null, plan: { worker: "agent" } });
    expect(agent.calls[0]?.plan).not.toBeNull();
  });

  it("says what a worker may ask for beyond its sandbox while it runs", async () => {
    const { notes } = await explained("asking");
    expect(notes).toEqual([
      "While it runs, it may be granted up to 3 directories in ./data, ../shared, if a rule or a person approves.",
      "It may use these git repositories, as far as its callers may: notes.",
    ]);
    expect((await explained("bottom")).notes).toEqual([]);
  });

  it("finds a mount source that went away, and does not make it", async () => {
    expect(codes(await explained("gone"))).toEqual(["MOUNT_SOURCE_REFUSED"]);
    await expect(stat(join(project.dir, "gone"))).rejects.toThrow("ENOENT");
    await mkdir(join(project.dir, "gone"));
    expect(codes(await explained("gone"))).toBeNull();
    await rm(join(project.dir, "gone"), { recursive: true });
  });

  it("starts nothing", async () => {
    expect(await project.traces()).toEqual([]);
  });
});
