import { expect, it } from "vitest";
import { run } from "../../../src/run/run.ts";
import { memoryEngine } from "../memory-engine.ts";
import { openProject } from "../project-fixture.ts";
import { trailOf } from "../recorded/trail-of.ts";

it("a tool that throws is an answer to its model, without details, and a loud line for the user", async () => {
  const answers = [{ calls: [{ list_files: { path: "/" } }] }, { say: "I went on." }];
  await using project = await openProject(
    {
      files: { "s.yaml": JSON.stringify(answers) },
      workers: { a: { model: "script/s.yaml", tools: ["list_files"], sandbox: {} } },
    },
    { engine: memoryEngine({ programs: {} }).open },
  );
  const { environment } = project.corral;
  const worker = environment.project.workers.get("a");
  if (worker === undefined) throw new Error("there is no worker a");
  const grants = new Proxy(environment.grants, {
    get: (of, name) => {
      const own: unknown = Reflect.get(of, name);
      if (name === "look") return async () => await Promise.reject(new RangeError("no stack left at /host/place"));
      return typeof own === "function" ? own.bind(of) : own;
    },
  });
  const result = await run({ worker, signal: new AbortController().signal }, { ...environment, grants });
  expect(result).toMatchObject({ status: "succeeded", output: "I went on." });
  const acts = project.events.flatMap((event) => (event.type === "agent" ? [event.act] : []));
  expect(acts).toContainEqual({ kind: "called", id: expect.any(String), tool: "list_files", code: "INTERNAL" });
  const troubles = project.events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));
  expect(troubles).toEqual([
    expect.stringMatching(/^internal error in the tool list_files: RangeError: no stack left at \/host\/place \(at /),
  ]);
  const { records } = await trailOf(project);
  expect(records.filter(({ type }) => type === "tool_used")).toMatchObject([
    { tool: "list_files", ok: false, code: "INTERNAL", message: "RangeError: no stack left at /host/place" },
  ]);
});
