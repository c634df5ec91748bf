import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TranscriptFolder } from "../../../src/agent/transcript.ts";
import { openProject, type ProjectSpec, sh, writable } from "../project-fixture.ts";

const script = (...answers: readonly unknown[]) => JSON.stringify(answers);

/** One agent `a`, whose model is what the script says. */
function agentProject(answers: readonly unknown[], spec: Partial<ProjectSpec> & { agent?: object } = {}): ProjectSpec {
  const { agent = {}, workers = {}, files = {}, ...rest } = spec;
  return {
    zones: { in: "ro", out: "rw" },
    ...rest,
    files: { "scripts/a.yaml": script(...answers), ...files },
    workers: { a: { model: "script/scripts/a.yaml", ...agent }, ...workers },
  };
}

describe("an agent whose model is a script", () => {
  it("reads, writes and runs commands with its tools, and answers", async () => {
    const answers = [
      { say: "I look.", calls: [{ list_files: { path: "/in" } }, { read_file: { path: "/in/a.txt" } }] },
      { calls: [{ write_file: { path: "/out/b.txt", content: "from a tool" } }] },
      { calls: [{ exec: { command: "cat /in/a.txt /out/b.txt > /out/c.txt; id -u" } }] },
      { say: "Done." },
    ];
    await using project = await openProject(
      agentProject(answers, {
        agent: {
          tools: ["list_files", "read_file", "write_file", "exec"],
          sandbox: { zones: [{ name: "in" }, writable("out")] },
          shell_rules: { default: "pre_approved" },
        },
        files: { "in/a.txt": "hello " },
      }),
    );
    const result = await project.run("a");
    expect(result).toMatchObject({
      status: "succeeded",
      output: "Done.",
      stdout: "Done.\n",
      error: null,
      agent: { model: "script/scripts/a.yaml", steps: 4, costUsd: 0 },
    });
    expect(await readFile(join(project.dir, "out/c.txt"), "utf8")).toBe("hello from a tool");
    expect(await project.traces()).toEqual([]);
  });

  it("is told why a tool refuses, in words that it can act on, and goes on", async () => {
    const answers = [
      { calls: [{ write_file: { path: "/in/a.txt", content: "x" } }, { exec: { command: "id" } }, { no_such: {} }] },
      { say: "I could not." },
    ];
    await using project = await openProject(
      agentProject(answers, { agent: { tools: ["write_file"], sandbox: { zones: [{ name: "in" }] } } }),
    );
    expect(await project.run("a")).toMatchObject({ status: "succeeded", output: "I could not." });
    const acts = project.events.flatMap((event) => (event.type === "agent" ? [event.act] : []));
    const codes = acts.flatMap((act) => (act.kind === "called" ? [[act.tool, act.code]] : []));
    expect(codes).toEqual([
      ["write_file", "PATH_NOT_WRITABLE"],
      ["exec", "NO_SUCH_TOOL"],
      ["no_such", "NO_SUCH_TOOL"],
    ]);
    expect(await transcriptOf(project, (await lastRun(project)) ?? "")).toContain("Writable paths: none");
  });

  it("calls workers as tools of their own names, three agents deep, and each has less", async () => {
    const callDown = (tool: string) => [{ calls: [{ [tool]: { input: { n: 1 } } }] }, { say: "up" }];
    await using project = await openProject({
      zones: { in: "ro", out: "rw" },
      files: {
        "in/a.txt": "",
        "s/a.yaml": script(...callDown("b")),
        "s/b.yaml": script(...callDown("c")),
        "s/c.yaml": script(
          { calls: [{ write_file: { path: "/out/x", content: "" } }, { leaf: { attachments: ["/in/a.txt"] } }] },
          { say: "bottom" },
        ),
      },
      workers: {
        a: { model: "script/s/a.yaml", calls: ["b"], sandbox: { zones: [{ name: "in" }, writable("out")] } },
        b: { model: "script/s/b.yaml", calls: ["c"], sandbox: { inherit: true } },
        c: {
          model: "script/s/c.yaml",
          calls: ["leaf"],
          tools: ["write_file"],
          sandbox: { allow_read: ["/in"] },
        },
        leaf: { command: sh("ls /attachments; ls -d /out 2>/dev/null || echo no out") },
      },
    });
    const result = await project.run("a");
    const [b] = result.calls;
    const [c] = b?.calls ?? [];
    const [leaf] = c?.calls ?? [];
    expect([result, b, c].map((run) => run?.status)).toEqual(["succeeded", "succeeded", "succeeded"]);
    expect(leaf).toMatchObject({ worker: "leaf", stdout: "a.txt\nno out\n" });
    const refusals = project.events.flatMap((event) =>
      event.type === "agent" && event.act.kind === "called" && event.act.code !== null ? [event.act] : [],
    );
    expect(refusals).toMatchObject([{ tool: "write_file", code: "PATH_NOT_IN_SANDBOX" }]);
  });

  it("ends truthfully where its script ends too early, is none, or is not there", async () => {
    await using project = await openProject(agentProject([{ calls: [{ list_files: {} }] }]));
    expect(await project.run("a")).toMatchObject({
      status: "failed",
      error: { code: "SCRIPT_FAILED", message: expect.stringContaining("has only 1 answers") },
    });
    await using broken = await openProject(agentProject([], { files: { "scripts/a.yaml": "- shout: x" } }));
    expect(await broken.run("a")).toMatchObject({
      status: "failed",
      error: { code: "SCRIPT_FAILED", message: expect.stringContaining("unknown key `shout`") },
    });
    await using missing = await openProject({ workers: { a: { model: "script/nowhere.yaml" } } });
    expect(await missing.run("a")).toMatchObject({ status: "failed", error: { code: "SCRIPT_FAILED" } });
  });

  it("stops at its steps, and at its time", async () => {
    const forever = Array.from({ length: 5 }, () => ({ calls: [{ list_files: { path: "/" } }] }));
    await using project = await openProject(
      agentProject(forever, { agent: { tools: ["list_files"], limits: { steps: 3 } } }),
    );
    expect(await project.run("a")).toMatchObject({
      status: "failed",
      error: { code: "STEP_LIMIT" },
      agent: { steps: 3 },
    });
    await using slow = await openProject(
      agentProject([{ calls: [{ exec: { command: "sleep 60" } }] }, { say: "late" }], {
        agent: { tools: ["exec"], shell_rules: { default: "pre_approved" }, limits: { timeout: "2s" } },
      }),
    );
    expect(await slow.run("a")).toMatchObject({ status: "timed_out", output: null, error: { code: "TIMED_OUT" } });
    expect(await slow.traces()).toEqual([]);
  });

  it("is cancelled with everything that it began", async () => {
    await using project = await openProject(
      agentProject([{ calls: [{ exec: { command: "echo begun; sleep 60" } }] }, { say: "late" }], {
        agent: { tools: ["exec"], shell_rules: { default: "pre_approved" } },
      }),
    );
    const stop = new AbortController();
    const result = project.run("a", { signal: stop.signal });
    setTimeout(() => stop.abort(), 1500);
    expect(await result).toMatchObject({ status: "cancelled", output: null });
    expect(await project.traces()).toEqual([]);
  });

  it("takes back an answer that is not what `output_schema` asks, and takes the one that is", async () => {
    const schema = { type: "object", required: ["count"], properties: { count: { type: "integer" } } };
    const answers = [{ say: "Three." }, { say: '{"count": "3"}' }, { say: '```json\n{"count": 3}\n```' }];
    await using project = await openProject(agentProject(answers, { agent: { output_schema: schema } }));
    expect(await project.run("a")).toMatchObject({ status: "succeeded", output: { count: 3 }, agent: { steps: 3 } });
    await using never = await openProject(
      agentProject(Array(4).fill({ say: "no" }), { agent: { output_schema: schema } }),
    );
    expect(await never.run("a")).toMatchObject({ status: "failed", output: null, error: { code: "OUTPUT_NOT_VALID" } });
  });

  it("changes nothing where it did not succeed, and what it wrote waits", async () => {
    const answers = [{ calls: [{ write_file: { path: "/out/x", content: "1" } }] }];
    await using project = await openProject(
      agentProject(answers, {
        agent: { tools: ["write_file"], sandbox: { zones: [{ ...writable("out"), stage: true }] } },
      }),
    );
    expect(await project.run("a")).toMatchObject({
      status: "failed",
      changes: [{ path: "/out/x", kind: "create", outcome: "held" }],
    });
  });

  it("reads its attachments, also those that a caller's view holds, and no other file", async () => {
    const answers = [
      { calls: [{ read_file: { path: "/attachments/a.txt" } }, { read_file: { path: "/attachments/../in/a.txt" } }] },
      { say: "read" },
    ];
    await using project = await openProject(
      agentProject(answers, { agent: { tools: ["read_file"] }, files: { "in/a.txt": "attached text" } }),
    );
    const attachments = [{ name: "a.txt", host: join(project.dir, "in/a.txt") }];
    expect((await project.run("a", { attachments })).status).toBe("succeeded");
    const transcript = await transcriptOf(project, (await lastRun(project)) ?? "");
    expect(transcript).toContain("attached text");
    const codes = project.events.flatMap((event) =>
      event.type === "agent" && event.act.kind === "called" ? [[event.act.id, event.act.code]] : [],
    );
    expect(Object.fromEntries(codes)).toEqual({ "call-1-1": null, "call-1-2": "PATH_NOT_IN_SANDBOX" });
  });
});

describe("what a worker's file says of its input and attachments", () => {
  it("refuses an input that does not match, before anything begins, for agents and for commands", async () => {
    const input_schema = { type: "object", required: ["lang"], properties: { lang: { type: "string" } } };
    await using project = await openProject({
      files: { "s.yaml": script({ say: "x" }) },
      workers: { a: { model: "script/s.yaml", input_schema }, w: { command: ["true"], input_schema } },
    });
    for (const worker of ["a", "w"]) {
      expect(await project.run(worker, { input: { lang: 1 } })).toMatchObject({
        status: "refused",
        violations: [{ code: "INPUT_NOT_VALID", reason: "/lang must be string" }],
      });
      expect((await project.run(worker, { input: { lang: "en" } })).status).toBe("succeeded");
    }
  });

  it("refuses too many attachments, too large ones and other suffixes, all at once", async () => {
    await using project = await openProject({
      files: { "a.txt": "12345", "b.md": "1", "s.yaml": script({ say: "x" }) },
      workers: {
        w: { command: ["true"], attachments: { max_count: 1, max_bytes: 3, suffixes: [".MD"] } },
        a: { model: "script/s.yaml", attachments: { max_count: 1, max_bytes: 3, suffixes: [".MD"] } },
      },
    });
    const file = (name: string) => ({ name, host: join(project.dir, name) });
    for (const worker of ["w", "a"]) {
      const refused = await project.run(worker, { attachments: [file("a.txt"), file("b.md")] });
      expect(refused.status).toBe("refused");
      expect(refused.violations.map(({ code }) => code)).toEqual(Array(3).fill("ATTACHMENTS_NOT_TAKEN"));
      expect((await project.run(worker, { attachments: [file("b.md")] })).status).toBe("succeeded");
    }
  });

  it("refuses an input, and an answer, that is nested too deeply to be written down", async () => {
    const deep = (levels: number): string => "[".repeat(levels) + "]".repeat(levels);
    await using project = await openProject({
      files: { "s.yaml": script(...Array(4).fill({ say: deep(10_000) })) },
      workers: { w: { command: ["true"] }, a: { model: "script/s.yaml", output: "json" } },
    });
    expect(await project.run("w", { input: JSON.parse(deep(10_000)) })).toMatchObject({
      status: "refused",
      violations: [{ code: "INPUT_NOT_VALID", reason: "it is nested more than 500 levels deep" }],
    });
    expect(await project.run("a")).toMatchObject({ status: "failed", error: { code: "OUTPUT_NOT_VALID" } });
  });

  it("fails a command whose output does not match its `output_schema`", async () => {
    const output_schema = { type: "array" };
    await using project = await openProject({
      workers: {
        good: { command: sh("echo [1]"), output_schema },
        bad: { command: sh("echo {}"), output_schema },
      },
    });
    expect(await project.run("good")).toMatchObject({ status: "succeeded", output: [1] });
    expect(await project.run("bad")).toMatchObject({ status: "failed", error: { code: "OUTPUT_NOT_VALID" } });
  });
});

type Opened = Awaited<ReturnType<typeof openProject>>;

async function transcriptOf(project: Opened, run: string): Promise<string | null> {
  return await new TranscriptFolder(project.stateDir, project.corral.project.dir).read(run);
}

async function lastRun(project: Opened): Promise<string | undefined> {
  return project.events.findLast((event) => event.type === "ended")?.run;
}
