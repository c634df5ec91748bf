import { expect, it } from "vitest";
import { run } from "../../../src/run/run.ts";
import { openProject, writable } from "../project-fixture.ts";
import { trailOf } from "../recorded/trail-of.ts";

it("every tool that an agent asked for is in the audit trail, also one that there is not, and how its commands ended", async () => {
  const answers = [
    {
      calls: [{ write_file: { path: "/out/a", content: "nobody's to keep" } }, { read_file: { path: "/etc/passwd" } }],
    },
    { calls: [{ exec: { command: "exit 7" } }, { git_push: { commit: "x" } }, { "no\u001b[2J such": { path: "/x" } }] },
    { say: "Done." },
  ];
  await using project = await openProject({
    zones: { out: "rw" },
    files: { "s.yaml": JSON.stringify(answers) },
    workers: {
      a: {
        model: "script/s.yaml",
        tools: ["read_file", "write_file", "exec"],
        sandbox: { zones: [writable("out")] },
        shell_rules: { default: "pre_approved" },
      },
    },
  });
  const { run } = await project.run("a");
  const { records, verdict } = await trailOf(project);
  expect(verdict).toMatchObject({ ok: true, problems: [] });
  const used = records.filter(({ type }) => type === "tool_used");
  expect(used).toMatchObject([
    { run, worker: "a", tool: "write_file", on: { path: "/out/a" }, ok: true },
    { tool: "read_file", on: { path: "/etc/passwd" }, ok: false, code: "PATH_NOT_IN_SANDBOX" },
    { tool: "exec", on: { command: "exit 7" }, ok: true, status: "failed", exitCode: 7 },
    { tool: "git_push", on: { commit: "x" }, ok: false, code: "NO_SUCH_TOOL" },
    { tool: "no\u001b[2J such", on: { path: "/x" }, ok: false, code: "NO_SUCH_TOOL" },
  ]);
  expect(used[0]).not.toHaveProperty("status");
  expect(JSON.stringify(records)).not.toContain("nobody's to keep");
});

it("so is each call of one answer that was one too many, and each is told as it goes", async () => {
  const calls = Array.from({ length: 131 }, (_, at) => ({ list_files: { path: `/in/${at}` } }));
  await using project = await openProject({
    zones: { in: "ro" },
    files: { "s.yaml": JSON.stringify([{ calls }, { say: "Done." }]) },
    workers: { a: { model: "script/s.yaml", tools: ["list_files"], sandbox: { zones: [{ name: "in" }] } } },
  });
  expect(await project.run("a")).toMatchObject({ status: "succeeded" });
  const acts = project.events.flatMap((event) => (event.type === "agent" ? [event.act.kind] : []));
  expect(acts.filter((kind) => kind === "call")).toHaveLength(131);
  expect(acts.filter((kind) => kind === "called")).toHaveLength(131);
  const used = (await trailOf(project)).records.filter(({ type }) => type === "tool_used");
  expect(used).toHaveLength(131);
  expect(used.filter(({ code }) => code === "TOO_MANY_CALLS")).toMatchObject(
    [128, 129, 130].map((at) => ({ tool: "list_files", on: { path: `/in/${at}` }, ok: false })),
  );
});

it("so is a command that a program of its cell asks for, and is refused", async () => {
  const ask = `curl -s --unix-socket "$CORRAL_SOCKET" -d '{"command":"id"}' http://corral/v1/tools/exec`;
  await using project = await openProject({
    zones: {},
    files: { "s.yaml": JSON.stringify([{ calls: [{ exec: { command: ask } }] }, { say: "Done." }]) },
    workers: {
      a: { model: "script/s.yaml", tools: ["exec"], sandbox: {}, shell_rules: { default: "pre_approved" } },
    },
  });
  await project.run("a");
  const used = (await trailOf(project)).records.filter(({ type }) => type === "tool_used");
  expect(used).toMatchObject([
    { tool: "exec", on: { command: "id" }, ok: false, code: "EXEC_WITHIN_EXEC" },
    { tool: "exec", on: { command: ask }, ok: true },
  ]);
});

it("so is a tool that broke off, for trouble of Corral's own", async () => {
  await using project = await openProject({
    zones: {},
    files: { "s.yaml": JSON.stringify([{ calls: [{ exec: { command: "id" } }] }, { say: "Done." }]) },
    workers: {
      a: { model: "script/s.yaml", tools: ["exec"], sandbox: {}, shell_rules: { default: "pre_approved" } },
    },
  });
  const { environment } = project.corral;
  const worker = environment.project.workers.get("a");
  if (worker === undefined) throw new Error("there is no worker a");
  const grants = new Proxy(environment.grants, {
    get: (of, name) => {
      const own: unknown = Reflect.get(of, name);
      if (name === "look") return async () => await Promise.reject(new Error("the disk is gone"));
      return typeof own === "function" ? own.bind(of) : own;
    },
  });
  const running = run({ worker, signal: new AbortController().signal }, { ...environment, grants });
  await running.catch(() => null);
  const used = (await trailOf(project)).records.filter(({ type }) => type === "tool_used");
  expect(used).toMatchObject([
    { tool: "exec", on: { command: "id" }, ok: false, code: "INTERNAL", message: "Error: the disk is gone" },
  ]);
});
