import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { generateText, isStepCount, ToolLoopAgent } from "ai";
import { describe, expect, it } from "vitest";
import type { AiToolOutput, WorkerTools } from "../../src/index.ts";
import { type ProjectSpec, sh, writable } from "../run/project-fixture.ts";
import { libraryProject } from "./library-project.ts";
import { scriptedModel } from "./scripted-model.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const SPEC: ProjectSpec = {
  zones: { in: "ro", out: "rw", side: "rw" },
  files: { "in/a.txt": "one two\n", "s.yaml": '[{ "say": "x" }]' },
  workers: {
    clerk: {
      model: "script/s.yaml",
      tools: ["read_file", "write_file", "exec", "call_worker", "git_push"],
      calls: ["word.count"],
      sandbox: {
        zones: [{ name: "in" }, writable("out"), { name: "side", mode: "rw", stage: true, approval: "pre_approved" }],
      },
      shell_rules: { default: "pre_approved" },
    },
    "word.count": {
      description: "Counts words.",
      command: sh("wc -w < /attachments/a.txt; test -e /out || echo no out"),
      attachments: { max_count: 1 },
    },
    asks: { model: "script/s.yaml", tools: ["write_file"], sandbox: { zones: [{ name: "side", mode: "rw" }] } },
    none: { model: "script/s.yaml" },
  },
};

/** The output part of every tool's answer that the model was shown with its last question. */
function shown(model: ReturnType<typeof scriptedModel>): unknown[] {
  const prompt = model.doGenerateCalls.at(-1)?.prompt ?? [];
  return prompt.flatMap((message) =>
    message.role === "tool"
      ? message.content.flatMap((part) => (part.type === "tool-result" ? [part.output] : []))
      : [],
  );
}

async function* pieces(...all: Buffer[]) {
  yield* all;
}

describe("a worker's tools as plain functions", () => {
  it("read, write, run commands and call workers under the worker's own sandbox, and leave nothing", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project, dir, stateDir } = fixture;
    {
      await using tools = await project.tools("clerk");
      expect(await tools.call.read_file({ path: "/in/a.txt" })).toMatchObject({ ok: true, text: "one two\n" });
      expect(await tools.call.write_file({ path: "/out/b.txt", content: "x" })).toMatchObject({ ok: true });
      const printed: string[] = [];
      const ran = await tools.call.exec(
        { command: "cat /in/a.txt; test -e /etc/corral || echo none >&2; exit 3" },
        { onOutput: (stream, chunk) => void printed.push(`${stream} ${chunk}`) },
      );
      expect(ran).toMatchObject({ ok: true, data: { status: "failed", exitCode: 3 } });
      expect(printed.toSorted()).toEqual(["stderr none\n", "stdout one two\n"]);
      expect(await tools.put("/out/c", pieces(Buffer.alloc(300_000, "c")))).toMatchObject({ bytes: 300_000 });
      const { kind, content } = await tools.get("/out/c");
      expect([kind, Buffer.concat(await Array.fromAsync(content)).length]).toEqual(["file", 300_000]);
      await expect(tools.get("/out/c", { maxBytes: 1000 })).rejects.toMatchObject({ code: "TOO_LARGE" });
      // It is not read, and nothing waits for that.
      await tools.get("/out/c");
      await tools.call.exec({ command: "rm /out/c" });
      const called = await tools.callWorker("word.count", { attachments: ["/in/a.txt"] });
      expect(called).toMatchObject({ ok: true, text: "2\nno out\n" });
      expect(tools.sandbox.writableRoots).toEqual(["/out", "/side"]);
      expect(await tools.close()).toBeNull();
    }
    expect(await readFile(join(dir, "out/b.txt"), "utf8")).toBe("x");
    const [owner = ""] = await readdir(join(stateDir, "live"));
    expect(await readdir(join(stateDir, "live", owner))).toEqual(["owner"]);
  });

  it("answer refusals, which say what is allowed instead", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    const codes = async (...calls: readonly ReturnType<WorkerTools["callWorker"]>[]) =>
      (await Promise.all(calls)).map((answer) => (answer.ok ? "ok" : answer.code));
    const { call } = tools;
    expect(
      await codes(
        call.read_file({ path: "/etc/passwd" }),
        call.write_file({ path: "/in/a.txt", content: "" }),
        call.read_file({ path: 1 } as unknown as { path: string }),
        call.edit_file({ path: "/out/x", edits: [{ old: "a", new: "b" }] }),
        tools.callWorker("none"),
        tools.callWorker("word.count", { attachments: ["/etc/passwd"] }),
      ),
    ).toEqual([
      "PATH_NOT_IN_SANDBOX",
      "PATH_NOT_WRITABLE",
      "BAD_INPUT",
      "TOOL_NOT_OFFERED",
      "CALL_NOT_LISTED",
      "ATTACHMENT_REFUSED",
    ]);
  });

  it("are those that the worker may use, and of those the ones that could do anything", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    expect(Object.keys(tools.call)).toEqual(["read_file", "write_file", "exec", "call_worker"]);
    expect(Object.keys(tools.ai)).toEqual(["read_file", "write_file", "exec", "call_worker", "word_count"]);
    await using none = await fixture.project.tools("none");
    expect([Object.keys(none.call), Object.keys(none.ai)]).toEqual([[], []]);
  });

  it.each([
    [
      "throws",
      () => {
        throw new Error("the screen is gone");
      },
    ],
    ["rejects", async () => Promise.reject(new Error("the screen is gone"))],
  ])("end a command whose listener %s, and reject with its error; the next one goes on", async (_, onOutput) => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    const begunAt = performance.now();
    const listened = tools.call.exec({ command: "echo begun; sleep 60" }, { onOutput });
    await expect(listened).rejects.toThrow("the screen is gone");
    expect(performance.now() - begunAt).toBeLessThan(30_000);
    expect(await tools.call.exec({ command: "echo next" })).toMatchObject({ ok: true, data: { exitCode: 0 } });
  });

  it("are stopped by the signal of a call, by that of the tools, and by closing the project", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project } = fixture;
    const sleep = { command: "echo begun; sleep 60" };
    const stopping = (stop: () => void) => ({ onOutput: () => stop() });

    const one = new AbortController();
    await using tools = await project.tools("clerk");
    const first = await tools.call.exec(sleep, { signal: one.signal, ...stopping(() => one.abort()) });
    expect(first.ok && first.data.status).not.toBe("succeeded");
    expect((await tools.call.read_file({ path: "/in/a.txt" })).ok, "the others go on").toBe(true);

    const all = new AbortController();
    await using stopped = await project.tools("clerk", { signal: all.signal });
    const second = await stopped.call.exec(
      sleep,
      stopping(() => all.abort()),
    );
    expect(second.ok && second.data.status).not.toBe("succeeded");

    const begun = Promise.withResolvers<void>();
    const third = tools.call.exec(sleep, stopping(begun.resolve));
    await begun.promise;
    await project[Symbol.asyncDispose]();
    const over = await third;
    expect(over.ok && over.data.status).not.toBe("succeeded");
    expect(await tools.call.read_file({ path: "/in/a.txt" })).toMatchObject({ ok: false, code: "CANCELLED" });
    expect(await readdir(join(fixture.stateDir, "live"))).toEqual([]);
  });
});

describe("closing a worker's tools", () => {
  it("applies what was staged, and tells what became of it, the same each time", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    await tools.call.exec({ command: "echo staged > /side/x" });
    await expect(readFile(join(fixture.dir, "side/x"))).rejects.toThrow(/ENOENT/);
    const settled = await tools.close();
    expect(settled).toMatchObject({
      changes: [{ path: "/side/x", kind: "create", outcome: "applied" }],
      failure: null,
    });
    expect(await tools.close()).toBe(settled);
    expect(await readFile(join(fixture.dir, "side/x"), "utf8")).toBe("staged\n");
    expect(await tools.call.read_file({ path: "/in/a.txt" })).toMatchObject({ ok: false, code: "CANCELLED" });
  });

  it("is not done by disposing: what a program wrote that failed in the middle waits", async () => {
    await using fixture = await libraryProject(SPEC);
    const { project, dir, stateDir } = fixture;
    let run = "";
    const failing = async (): Promise<void> => {
      await using tools = await project.tools("clerk");
      run = tools.run;
      await tools.call.exec({ command: "echo staged > /side/x" });
      throw new Error("in the middle");
    };
    await expect(failing()).rejects.toThrow("in the middle");
    await expect(readFile(join(dir, "side/x"))).rejects.toThrow(/ENOENT/);
    expect(await readdir(join(stateDir, "changes"))).toEqual([run]);
  });

  it("asks the project's approver, and nobody where there is none", async () => {
    const asked: string[] = [];
    const approver = {
      async decide({ paths }: { readonly paths: readonly string[] }) {
        asked.push(...paths);
        return { outcome: "approved", scope: "once", reason: "for the test" } as const;
      },
    };
    await using agreed = await libraryProject(SPEC, { approver });
    await using tools = await agreed.project.tools("asks");
    expect(await tools.call.write_file({ path: "/side/y", content: "1" })).toMatchObject({ ok: true });
    expect(asked).toEqual(["/side/y"]);
    expect(await tools.close()).toMatchObject({ changes: [{ path: "/side/y", outcome: "applied" }], failure: null });

    await using alone = await libraryProject(SPEC);
    await using denied = await alone.project.tools("asks");
    const answer = await denied.call.write_file({ path: "/side/y", content: "1" });
    expect(answer).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
  });
});

describe("a worker's tools for `ai`", () => {
  it("are used by generateText: files, commands and workers, and refusals are errors for the model", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    const model = scriptedModel(
      [["read_file", { path: "/in/a.txt" }]],
      [
        ["write_file", { path: "/in/a.txt", content: "" }],
        ["read_file", { file: "/in/a.txt" }],
      ],
      [["word_count", { attachments: ["/in/a.txt"] }]],
      "Done.",
    );
    const { text, steps } = await generateText({ model, tools: tools.ai, prompt: "Count.", stopWhen: isStepCount(9) });
    expect([text, steps.length]).toEqual(["Done.", 4]);
    expect(shown(model)).toEqual([
      { type: "text", value: "one two\n" },
      { type: "error-text", value: expect.stringContaining("Writable paths: /out, /side") },
      { type: "error-text", value: expect.stringContaining("The input of read_file is not valid") },
      { type: "text", value: "2\nno out\n" },
    ]);
    const refusal = steps[1]?.toolResults[0]?.output as AiToolOutput;
    expect(refusal).toMatchObject({ ok: false, code: "PATH_NOT_WRITABLE" });
  });

  it("are described to the model by their schemas, workers of `calls` by theirs", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    const model = scriptedModel("Nothing to do.");
    await new ToolLoopAgent({ model, tools: tools.ai }).generate({ prompt: "Hello." });
    const told = model.doGenerateCalls[0]?.tools ?? [];
    expect(told.map(({ name }) => name).toSorted()).toEqual(Object.keys(tools.ai).toSorted());
    expect(told).toContainEqual(
      expect.objectContaining({
        name: "read_file",
        inputSchema: expect.objectContaining({ type: "object", required: ["path"] }),
      }),
    );
    expect(told).toContainEqual(
      expect.objectContaining({ name: "word_count", description: expect.stringContaining("Counts words.") }),
    );
  });

  it("begin in the order of the answer: what changes something waits, and is waited for", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    const model = scriptedModel(
      [
        ["exec", { command: "sleep 1; echo late > /out/order" }],
        ["read_file", { path: "/out/order" }],
        ["write_file", { path: "/out/order", content: "over" }],
        ["exec", { command: "cat /out/order" }],
      ],
      "Done.",
    );
    await generateText({ model, tools: tools.ai, prompt: "Go.", stopWhen: isStepCount(3) });
    expect(shown(model)).toMatchObject([{}, { value: "late\n" }, {}, { value: "over" }]);
  });

  it("show images, or say that there is one where a model takes none", async () => {
    await using fixture = await libraryProject(SPEC);
    await writeFile(join(fixture.dir, "in/dot.png"), Buffer.from(PNG, "base64"));
    const told = async (images: "in the result" | "never"): Promise<unknown> => {
      await using tools = await fixture.project.tools("clerk", { images });
      const model = scriptedModel([["read_file", { path: "/in/dot.png" }]], "Seen.");
      await generateText({ model, tools: tools.ai, prompt: "Look.", stopWhen: isStepCount(3) });
      return shown(model);
    };
    expect(await told("in the result")).toMatchObject([
      { type: "content", value: [{ type: "text" }, { type: "file", mediaType: "image/png", data: { data: PNG } }] },
    ]);
    expect(await told("never")).toMatchObject([
      { type: "text", value: expect.stringContaining("this model gets no images") },
    ]);
  });

  it("end with the abort signal of the loop, and leave the tools usable", async () => {
    await using fixture = await libraryProject(SPEC);
    await using tools = await fixture.project.tools("clerk");
    const model = scriptedModel([["exec", { command: "sleep 60" }]], "never");
    const began = performance.now();
    const abortSignal = AbortSignal.timeout(1500);
    await expect(
      generateText({ model, tools: tools.ai, prompt: "Go.", stopWhen: isStepCount(3), abortSignal }),
    ).rejects.toThrow();
    expect(performance.now() - began).toBeLessThan(20_000);
    expect((await tools.call.read_file({ path: "/in/a.txt" })).ok).toBe(true);
  });
});
