import { mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join, relative } from "node:path";
import { describe, expect, it, vi } from "vitest";
import {
  DeclarationError,
  EngineUnavailableError,
  type FleetEvent,
  type FleetTotals,
  openProject,
  type RunEvent,
  UnknownPolicyError,
} from "../../src/index.ts";
import { type ProjectSpec, sh, writable } from "../run/project-fixture.ts";
import { libraryProject } from "./library-project.ts";

const NO_ENGINE = { DOCKER_HOST: "unix:///nonexistent/docker.sock" };

const SPEC: ProjectSpec = {
  zones: { in: "ro", out: "rw" },
  files: { "in/a.txt": "one two\n", "b.txt": "three\n" },
  workers: {
    count: { command: sh("cat; wc -w /attachments/*") },
    parent: { command: sh("corral-call count --attach /in/a.txt"), calls: ["count"], sandbox: { allow_read: ["/in"] } },
    writes: { command: sh("echo x > /out/x"), sandbox: { zones: [writable("out")] } },
    greedy: { command: ["true"], sandbox: { zones: [{ name: "in", mode: "rw" }, { name: "nowhere" }] } },
    first: { command: sh("read -r n; case $n in *1*) ;; *) sleep 60 ;; esac") },
    sleeps: { command: ["sleep", "60"] },
  },
};

describe("openProject", () => {
  it("keeps its state where the command line keeps it, as `env` says and nothing else does", async () => {
    await using fixture = await libraryProject(SPEC);
    const at = async (options: Parameters<typeof openProject>[1]): Promise<string> => {
      await using project = await openProject(fixture.dir, options);
      return project.stateDir;
    };
    expect(await at({ env: { CORRAL_STATE_DIR: "/x/state", HOME: "/h" } })).toBe("/x/state");
    expect(await at({ env: { HOME: "/h" } })).toBe("/h/.local/state/corral");
    expect(await at({})).toBe(join(homedir(), ".local/state/corral"));
    expect(await at({ stateDir: "s", env: { CORRAL_STATE_DIR: "/x" } })).toBe(join(process.cwd(), "s"));
  });

  it("tells every mistake of the project's files, and needs no Engine to be opened and looked at", async () => {
    await using broken = await libraryProject({ workers: {} });
    await writeFile(join(broken.dir, "corral.yaml"), "version: 1\npolicyy: x\n");
    await expect(openProject(broken.dir)).rejects.toThrow(DeclarationError);

    await using fixture = await libraryProject(SPEC, { env: NO_ENGINE });
    const { project } = fixture;
    expect(await project.check()).toMatchObject({ ok: false, workers: 6, failing: [{ path: ["greedy"] }] });
    expect((await project.explain("parent")).tree).toMatchObject({ plan: null, calls: [{ worker: "count" }] });
    expect(await project.planFor("count")).toMatchObject({ ok: false, violations: [], message: /nonexistent/ });
    expect((await project.sandbox("parent")).readableRoots).toEqual(["/in"]);
    await expect(project.run("count")).rejects.toThrow(/nonexistent/);
    await expect(project.run("count"), "it is looked for again").rejects.toThrow(/nonexistent/);
    await expect(project.run("count")).rejects.toBeInstanceOf(EngineUnavailableError);
    await expect(project.planFor("count", { policy: "nobody" })).rejects.toBeInstanceOf(UnknownPolicyError);
  });

  it("refuses an option and a mode of approval that do not exist", async () => {
    await using fixture = await libraryProject(SPEC);
    const misspelt = openProject(fixture.dir, { approvelMode: "auto_deny" } as never);
    await expect(misspelt).rejects.toThrow("openProject has no `approvelMode`, did you mean `approvalMode`?");
    const unknown = openProject(fixture.dir, { readonly: true } as never);
    await expect(unknown).rejects.toThrow("openProject has no `readonly`; there are: env, stateDir, approver, person,");
    const opened = openProject(fixture.dir, { approvalMode: "deny" as never, env: NO_ENGINE });
    await expect(opened).rejects.toThrow(/approvalMode.*interactive, approve_all, auto_deny.*"deny"/);
  });

  it("looks for an Engine again that was not there at first", async () => {
    const dir = await mkdtemp(join(tmpdir(), "cr-"));
    const socket = join(dir, "docker.sock");
    await using fixture = await libraryProject(SPEC, { env: { ...process.env, DOCKER_HOST: `unix://${socket}` } });
    const attachments = [join(fixture.dir, "b.txt")];
    await expect(fixture.project.run("count", { attachments })).rejects.toThrow(/docker.sock/);
    await symlink("/var/run/docker.sock", socket);
    expect(await fixture.project.run("count", { attachments })).toMatchObject({ status: "succeeded" });
    await rm(dir, { recursive: true });
  });

  it("names the nearest worker where there is none of that name, in every method", async () => {
    await using fixture = await libraryProject(SPEC, { env: NO_ENGINE });
    const { project } = fixture;
    const template = { attach: ["{path}"] };
    for (const use of [
      () => project.run("cuont"),
      () => project.tools("cuont"),
      () => project.explain("cuont"),
      () => project.planFor("cuont"),
      () => project.sandbox("cuont"),
      async () => project.map("cuont", { items: [], template }),
    ])
      await expect(use()).rejects.toMatchObject({ name: "RequestError", code: "UNKNOWN_WORKER", asked: "cuont" });
    await expect(project.run("cuont")).rejects.toThrow(/count/);
  });
});

describe("project.run", () => {
  it("hands on input and attachments, of the host and of the project, and answers with what became of it", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project, dir } = fixture;
    const attachments = [
      join(dir, "b.txt"),
      { path: relative(process.cwd(), join(dir, "b.txt")), name: "c.txt" },
      "/in/a.txt",
    ];
    const result = await project.run("count", { input: { n: 1 }, attachments });
    expect(result).toMatchObject({ status: "succeeded", error: null });
    expect(result.stdout.split("\n").map((line) => line.trim())).toEqual([
      '{"n":1}',
      "2 /attachments/a.txt",
      "1 /attachments/b.txt",
      "1 /attachments/c.txt",
      "4 total",
      "",
    ]);
  });

  it("throws where a file to attach is not there, and answers where a worker is refused", async () => {
    await using fixture = await libraryProject(SPEC);
    await expect(fixture.project.run("count", { attachments: ["./nowhere.txt"] })).rejects.toMatchObject({
      code: "ATTACHMENT",
    });
    const refused = await fixture.project.run("greedy");
    expect(refused).toMatchObject({ status: "refused" });
    expect(refused.violations).toHaveLength(2);
    await expect(fixture.project.tools("greedy")).rejects.toMatchObject({ code: "WORKER_REFUSED" });
    await expect(fixture.project.sandbox("greedy")).rejects.toThrow(refused.violations[0]?.message);
  });

  it("tells a run's own events to its `onEvent`, those of its calls among them, and all to `emit`", async () => {
    await using fixture = await libraryProject(SPEC);
    const seen: RunEvent[][] = [[], []];
    await Promise.all(
      ["parent", "writes"].map((worker, index) =>
        fixture.project.run(worker, { onEvent: (event) => void seen[index]?.push(event) }),
      ),
    );
    const ended = (events: readonly RunEvent[]) =>
      events.flatMap((event) => (event.type === "ended" ? [event.worker] : [])).toSorted();
    expect(seen.map(ended)).toEqual([["count", "parent"], ["writes"]]);
    expect(ended(fixture.events)).toEqual(["count", "parent", "writes"]);
  });

  it("takes the policy of the call, else the project's as it was opened", async () => {
    await using fixture = await libraryProject(SPEC, { policy: "ci" });
    const policyOf = async (policy?: string) => {
      const answer = await fixture.project.planFor("count", policy === undefined ? {} : { policy });
      return answer.ok ? answer.plan.policy : answer.message;
    };
    expect([await policyOf(), await policyOf("untrusted")]).toEqual(["ci", "untrusted"]);
  });

  it("is cancelled by its signal, and by closing the project, and leaves nothing", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project, stateDir } = fixture;
    const stop = new AbortController();
    const onEvent = (event: RunEvent): void => void (event.type === "started" && stop.abort());
    expect(await project.run("sleeps", { signal: stop.signal, onEvent })).toMatchObject({ status: "cancelled" });

    const begun = Promise.withResolvers<void>();
    const closed = project.run("sleeps", { onEvent: (event) => void (event.type === "started" && begun.resolve()) });
    await begun.promise;
    await project[Symbol.asyncDispose]();
    expect(await closed).toMatchObject({ status: "cancelled" });
    expect(await readdir(join(stateDir, "live"))).toEqual([]);
    await expect(project.run("count")).rejects.toThrow(/closed/);
  });
});

describe("project.map", () => {
  it("runs a worker over items, and closing the project ends one that nobody takes results of any more", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project, dir, events, stateDir } = fixture;
    const template = { attach: ["{path}"] };
    const items = [join(dir, "b.txt"), join(dir, "in/a.txt")];
    const [types, totals]: [string[], FleetTotals[]] = [[], []];
    const onEvent = ({ type }: FleetEvent): void => void types.push(type);
    const onProgress = (now: FleetTotals): void => void totals.push(now);
    const results = await Array.fromAsync(project.map("count", { template, items, onEvent, onProgress }));
    expect(results.map(({ status }) => status)).toEqual(["succeeded", "succeeded"]);
    expect([types[0], types.at(-1)]).toEqual(["loaded", "ended"]);
    expect(totals[0]).toMatchObject({ items: 2, done: 0, running: 0 });
    expect(totals.at(-1)).toMatchObject({ items: 2, done: 2, succeeded: 2, failed: 0, running: 0 });
    await expect(Array.fromAsync(project.map("count", { items: [] }))).rejects.toThrow(/has no items/);
    expect(await Array.fromAsync(project.map("count", { items: [], allowEmpty: true }))).toEqual([]);

    const many = [1, 2, 3, 4].map((n) => ({ n }));
    const keyed = {
      template: { attach: [], input: { n: "{n}" }, key: "{n}" },
      items: many,
      concurrency: 4,
      cache: false,
    };
    const left = project.map("first", keyed);
    expect((await left.next()).value).toMatchObject({ key: "1", status: "succeeded" });
    const of = (type: RunEvent["type"]) => events.filter((event) => event.type === type).map(({ run }) => run);
    await vi.waitFor(() => expect(of("started")).toHaveLength(6), { timeout: 60_000 });
    await project[Symbol.asyncDispose]();
    expect(of("ended").toSorted()).toEqual(of("requested").toSorted());
    expect(await readdir(join(stateDir, "live"))).toEqual([]);
    expect((await left.next()).done).toBe(true);
  });
});

describe("project.map of a project that says how", () => {
  it("does as corral.yaml says, where the program does not", async () => {
    await using fixture = await libraryProject({ ...SPEC, yaml: { fleet: { cache: false } } });
    const items = [join(fixture.dir, "b.txt")];
    const statuses = async (more: { cache?: boolean } = {}) => {
      const results = fixture.project.map("count", { template: { attach: ["{path}"] }, items, ...more });
      return (await Array.fromAsync(results)).map(({ status }) => status);
    };
    expect(await statuses({ cache: true })).toEqual(["succeeded"]);
    expect(await statuses({ cache: true })).toEqual(["cached"]);
    expect(await statuses()).toEqual(["succeeded"]);
  });
});

describe("project.planFor", () => {
  it("is the plan that the run then has, but for what only a run has", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project, events } = fixture;
    await rm(fixture.stateDir, { recursive: true });
    expect(await project.planFor("writes")).toMatchObject({ ok: true });
    await expect(readdir(fixture.stateDir), "a plan makes nothing").rejects.toThrow("ENOENT");
    // Its first run puts the gate in its place.
    await project.run("writes");
    const answer = await project.planFor("writes");
    if (!answer.ok) throw new Error(answer.message);
    expect(JSON.parse(JSON.stringify(answer.plan))).toEqual(answer.plan);
    const started = events.find((event) => event.type === "started");
    const steady = ({ run: _, root: __, env, mounts, ...plan }: typeof answer.plan) => ({
      ...plan,
      env: { ...env, CORRAL_RUN: "" },
      mounts: mounts.filter(({ kind }) => kind !== "socket"),
    });
    expect(started?.type === "started" && steady(started.plan)).toEqual(steady(answer.plan));
  });

  it("tells every reason why there would be none", async () => {
    await using fixture = await libraryProject(SPEC);
    const answer = await fixture.project.planFor("greedy");
    expect(answer).toMatchObject({ ok: false, violations: [{ code: /./ }, { code: /./ }] });
  });
});
