import { generateText, streamText, ToolLoopAgent, type ToolSet } from "ai";
import { describe, expectTypeOf, it } from "vitest";
import type { ToolName } from "../../src/declarations/worker/tool-names.ts";
import {
  type AiTool,
  callbackApprover,
  type OpenedProject,
  type Plan,
  type RunResult,
  type ToolInputs,
  type ToolResult,
  type WorkerTools,
} from "../../src/index.ts";
import { FileSandbox, openFiles, type SandboxFiles, sandboxOf } from "../../src/sandbox.ts";
import type { TOOLS } from "../../src/tools/toolbox.ts";
import { scriptedModel } from "./scripted-model.ts";

/** Never called: the compiler reads it, and each `@ts-expect-error` fails where the mistake below it is taken. */
async function used(project: OpenedProject, tools: WorkerTools): Promise<void> {
  await tools.call.read_file({ path: "/a", offset: 1 });
  await tools.call.call_worker({ worker: "a" });
  // @ts-expect-error a path is missing
  await tools.call.read_file({});
  // @ts-expect-error a path is text
  await tools.call.read_file({ path: 1 });
  // @ts-expect-error there is no such field
  await tools.call.read_file({ path: "/a", offsett: 1 });
  // @ts-expect-error there is no such tool
  await tools.call.read_files({ path: "/a" });
  // @ts-expect-error only a refusal has a message, and only an answer has a text: which one has to be looked at
  (await tools.call.read_file({ path: "/a" })).text;

  // @ts-expect-error attachments are a list
  await project.run("a", { attachments: "./a" });
  // @ts-expect-error a signal, and no controller
  await project.run("a", { signal: new AbortController() });
  // @ts-expect-error a worker is named
  await project.run(project.definition.workers.get("a"));
  // @ts-expect-error items are missing
  project.map("a", { template: { attach: [] } });
  // @ts-expect-error there is no such way to show images
  await project.tools("a", { images: "always" });

  // An answer of an async function keeps its type, whatever its form.
  callbackApprover(async () => {
    return "once";
  });
  callbackApprover(async ({ paths }) => (paths.length > 1 ? "no" : "session"), {});
  callbackApprover(() => "no");
  // @ts-expect-error there is no such answer
  callbackApprover(async () => {
    return "yes";
  });

  // @ts-expect-error either a root or mounts
  sandboxOf({ root: { host: "/a" }, mounts: {} });
  // @ts-expect-error one of both
  sandboxOf({});
  // @ts-expect-error there is no such mode
  sandboxOf({ mounts: { a: { host: "/a", mode: "w" } } });
  // @ts-expect-error derive speaks in camelCase
  sandboxOf({ mounts: {} }).derive({ allow_read: "/a" });

  // @ts-expect-error a backend is chosen
  openFiles(sandboxOf({ mounts: {} }), {});
  // @ts-expect-error there is no such backend
  openFiles(sandboxOf({ mounts: {} }), { backend: "disk" });
  const files = openFiles(sandboxOf({ mounts: {} }), { backend: "memory" });
  // @ts-expect-error content is text or bytes
  await files.write("/a", 1);
  // @ts-expect-error bytes are another method
  await files.read("/a", { as: "bytes" });

  const model = scriptedModel();
  await generateText({ model, tools: tools.ai, prompt: "" });
  streamText({ model, tools: { ...tools.ai }, prompt: "" });
  new ToolLoopAgent({ model, tools: tools.ai });
}

describe("the types of the library", () => {
  it("take what is right and nothing else", () => {
    expectTypeOf(used).returns.resolves.toBeVoid();
  });

  it("know what each tool takes, and that there is a function for each tool", () => {
    expectTypeOf<keyof WorkerTools["call"]>().toEqualTypeOf<ToolName>();
    expectTypeOf<ToolInputs["write_file"]["content"]>().toEqualTypeOf<string | Uint8Array>();
    expectTypeOf<ToolInputs["write_file"]["overwrite"]>().toEqualTypeOf<boolean | undefined>();
    expectTypeOf<ReturnType<WorkerTools["call"]["exec"]>>().toEqualTypeOf<Promise<ToolResult>>();
    expectTypeOf<typeof TOOLS>().toExtend<ReadonlyMap<string, { readonly name: ToolName }>>();
  });

  it("fit those of `ai`", () => {
    expectTypeOf<WorkerTools["ai"]>().toExtend<ToolSet>();
    expectTypeOf<AiTool>().toExtend<ToolSet[string]>();
  });

  it("tell a plan from its refusal, and a result from what was refused", () => {
    type Answer = Awaited<ReturnType<OpenedProject["planFor"]>>;
    expectTypeOf<Extract<Answer, { ok: true }>["plan"]>().toEqualTypeOf<Plan>();
    expectTypeOf<Extract<Answer, { ok: false }>>().not.toHaveProperty("plan");
    expectTypeOf<ReturnType<OpenedProject["run"]>>().toEqualTypeOf<Promise<RunResult>>();
    expectTypeOf(FileSandbox.prototype.resolve).returns.toEqualTypeOf<Promise<string>>();
    expectTypeOf<SandboxFiles["read"]>().returns.toEqualTypeOf<Promise<string>>();
    expectTypeOf<SandboxFiles["readBytes"]>().returns.toEqualTypeOf<Promise<Uint8Array>>();
    expectTypeOf(FileSandbox.prototype.derive).returns.toEqualTypeOf<FileSandbox>();
  });
});
