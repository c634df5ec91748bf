import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { transcriptFrom } from "../../../src/agent/loop.ts";
import { runWorker } from "../../../src/operations/workers.ts";
import { projectPaths } from "../../../src/state/state-dir.ts";
import { APIS } from "../../agent/provider-apis.ts";
import type { Behaviour, ModelTurn } from "../../agent/servers/behaviour.ts";
import { KEY, type ServedAgents, servedAgents } from "./served-agent.ts";

const turn = (made: ModelTurn): Behaviour => ({ type: "turn", turn: made });
const READ: ModelTurn = { calls: [{ name: "read_file", input: { path: "/in/a.txt" } }] };
const AGENT = { tools: ["read_file"], sandbox: { zones: [{ name: "in" }] } };

async function continued(
  agents: ServedAgents,
  run: string,
  more: { worker?: string; needs?: object; input?: unknown } = {},
) {
  const { environment } = agents.project.corral;
  const found = environment.project.workers.get(more.worker ?? "a");
  if (found === undefined) throw new Error("no worker");
  const worker = more.needs === undefined ? found : { ...found, needs: more.needs };
  const request = { worker, input: more.input, cwd: "/", policy: null, signal: new AbortController().signal };
  return await runWorker({ ...request, continues: run }, environment);
}

const transcriptOf = ({ project }: ServedAgents, run: string): string =>
  join(projectPaths(project.stateDir, project.dir).transcripts, `${run}.jsonl`);

describe.each(APIS)("a run that continues another, at a server for $api", (spoken) => {
  it("sends the model what was said, without its secrets, and gives it the rights of now", async () => {
    const told = ["The file says hello.", "It may not be read now.", "Still not."] as const;
    const behaviours = [
      turn(READ),
      turn({ text: told[0] }),
      turn(READ),
      turn({ text: told[1] }),
      turn({ text: told[2] }),
    ];
    await using agents = await servedAgents(spoken, behaviours, {
      agent: AGENT,
      files: { "in/a.txt": `hello ${KEY}` },
    });
    const first = await agents.run("a", { input: "Read it." });
    const second = await continued(agents, first.run, { needs: {}, input: "Again." });
    expect(second).toMatchObject({ status: "succeeded", output: told[1], agent: { continues: first.run } });
    const request = JSON.stringify(agents.server.requests[2]?.body);
    for (const said of ["Read it.", "read_file", "hello ", told[0], "continues the conversation above", "Again."])
      expect(request).toContain(said);
    expect(request).not.toContain(KEY);
    // Derived anew: what the first run could read, this one cannot.
    expect(agents.codes()).toEqual([
      ["read_file", null],
      ["read_file", "PATH_NOT_IN_SANDBOX"],
    ]);
    const third = await continued(agents, second.run);
    expect(third.agent?.continues).toBe(second.run);
    const all = JSON.stringify(agents.server.requests[4]?.body);
    for (const said of ["Read it.", told[0], "Again.", told[1], "Continue with your task."])
      expect(all).toContain(said);

    const head = transcriptFrom(await readFile(transcriptOf(agents, second.run), "utf8"))?.head;
    expect(head).toMatchObject({ run: second.run, continues: first.run });
    await agents.close();
    const files = await readdir(join(agents.project.stateDir, "audit"), { recursive: true, withFileTypes: true });
    const trail = files.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
    const texts = await Promise.all(trail.map((path) => readFile(path, "utf8")));
    expect(texts.join("")).toContain(`"continues":"${first.run}"`);
  });
});

describe("a run that cannot be continued", () => {
  it("is named with the reason, and nothing runs", async () => {
    const [spoken] = APIS;
    if (spoken === undefined) throw new Error("no api");
    await using agents = await servedAgents(spoken, [turn({ text: "Done." })], {
      agent: AGENT,
      workers: { c: { command: ["true"] }, b: { model: `here/${spoken.model}` } },
    });
    const { run } = await agents.run();
    const why = async (id: string, worker?: string): Promise<string> => {
      const made = continued(agents, id, worker === undefined ? {} : { worker });
      return await made.then(
        () => "it ran",
        (error: { code: string; message: string }) => `${error.code} ${error.message}`,
      );
    };
    expect(await why("000000000000")).toContain("UNKNOWN_TRANSCRIPT there is no transcript of a run 000000000000");
    expect(await why("../../x")).toContain("UNKNOWN_TRANSCRIPT");
    expect(await why(run, "c")).toContain("CONTINUE cannot continue run");
    expect(await why(run, "c")).toContain("worker c is no agent");
    expect(await why(run, "b")).toContain("it is a run of worker a, and not of b");
    const file = transcriptOf(agents, run);
    const whole = await readFile(file, "utf8");
    const lines = whole.trimEnd().split("\n");
    const put = async (text: string): Promise<void> => await writeFile(file, text);
    await put(`${lines.slice(0, -1).join("\n")}\n`);
    expect(await why(run)).toContain("it is still running");
    await put(
      `${lines
        .slice(0, -1)
        .join("\n")
        .replace(/"owner":"[^"]*"/, '"owner":"x"')}\n`,
    );
    expect(await why(run)).toContain("its transcript is not complete");
    for (const broken of ["", "x", `${lines[0]}\n{"type":"answer"}\n${lines.at(-1)}`, whole.slice(0, -9)]) {
      await put(broken);
      expect(await why(run), broken).toContain("its transcript is not complete");
    }
    await put(whole.replace(/"root":"[^"]*"/, '"root":"111111111111"'));
    expect(await why(run)).toContain("it was called by another run");
    expect(agents.server.requests).toHaveLength(1);
  });
});

describe("a conversation that was cut off", () => {
  it("has a result for each call: of one that is missing, that it is not known", () => {
    const entries = [
      { type: "begin", version: 1, at: "", run: "r", root: "r", worker: "a", model: "m" },
      { type: "told", text: "Do." },
      {
        type: "answer",
        say: "",
        calls: [
          { id: "1", tool: "x", input: {} },
          { id: "2", tool: "y", input: {} },
        ],
        end: "calls",
        usage: null,
      },
      { type: "result", id: "1", tool: "x", code: "NO", text: "no", image: { mimeType: "image/png", bytes: 1 } },
      { type: "end", status: "stopped", code: null, message: null },
    ];
    const read = transcriptFrom(entries.map((entry) => JSON.stringify(entry)).join("\n"));
    expect(read).toMatchObject({
      end: "stopped",
      messages: [
        { role: "user" },
        { role: "assistant", content: [{ toolCallId: "1" }, { toolCallId: "2" }] },
        {
          role: "tool",
          content: [
            { toolCallId: "1", output: { type: "error-text", value: expect.stringContaining("no\n[The image") } },
            { toolCallId: "2", output: { type: "error-text", value: expect.stringContaining("not known") } },
          ],
        },
      ],
    });
  });
});
