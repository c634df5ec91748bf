import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { APIS, type SpokenApi } from "../../agent/provider-apis.ts";
import type { Behaviour, ModelTurn } from "../../agent/servers/behaviour.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { sh, writable } from "../project-fixture.ts";
import { KEY, modelAt, servedAgents } from "./served-agent.ts";

const says = (text: string, turn: Partial<ModelTurn> = {}): Behaviour => ({ type: "turn", turn: { text, ...turn } });
const calls = (...made: [name: string, input: unknown][]): ModelTurn => ({
  calls: made.map(([name, input]) => ({ name, input })),
});
const asks = (...made: [name: string, input: unknown][]): Behaviour => ({ type: "turn", turn: calls(...made) });

const WRITER = { tools: ["write_file"], sandbox: { zones: [writable("out")] } };
/** A text of many events, of which the first ones make no sense. */
const LONG: ModelTurn = { text: "I begin to say something that never comes to its end, whatever it would have been." };

/** What fails once, and is made good by asking again, which `test/agent/asked-again.test.ts` tries at each API. */
const PASSING: Readonly<Record<string, Behaviour>> = {
  "a rate limit": { type: "status", status: 429, headers: { "retry-after-ms": "5" } },
  "a broken server": { type: "status", status: 500 },
  "an overload": { type: "status", status: 529 },
  "a connection that is left": { type: "drop" },
  "a connection cut in its middle": { type: "cut", after: 9, turn: LONG },
  "a silent end": { type: "stop-short", after: 9, turn: LONG },
  "an error in its middle": { type: "stream-error", after: 9, turn: LONG },
  "events that are no JSON": { type: "garbage" },
  "a page for people": { type: "garbage", what: "page" },
  "silence in its middle": { type: "stall", after: 9, turn: LONG },
  "no answer at all": { type: "hang" },
};

/** Where an answer breaks off is for each API to see. */
const OF_ANSWERS = ["cut", "stop-short", "stream-error", "garbage"];
const passingAt = (spoken: SpokenApi) =>
  Object.entries(PASSING).filter(([, { type }]) => AT_LENGTH || spoken === APIS[0] || OF_ANSWERS.includes(type));

describe.each(APIS)("an agent at a server for $api", (spoken) => {
  const model = modelAt(spoken);
  /** At the other APIs, what does not depend on how they word and send answers is left out. */
  const isAnother = spoken !== APIS[0] && !AT_LENGTH;

  it("does a whole job: lists, reads, writes, runs a command, calls a worker", async () => {
    await using agents = await servedAgents(
      spoken,
      [
        says("I look.", calls(["list_files", { path: "/in" }], ["read_file", { path: "/in/a.txt" }])),
        asks(["write_file", { path: "/out/b.txt", content: "written, grüße 世界" }]),
        asks(["exec", { command: "cat /in/a.txt /out/b.txt > /out/c.txt; id -u" }]),
        asks(["count", { attachments: ["/out/c.txt"] }]),
        says("It has that many."),
      ],
      {
        agent: {
          tools: ["list_files", "read_file", "write_file", "exec"],
          calls: ["count"],
          sandbox: { zones: [{ name: "in" }, writable("out")] },
          shell_rules: { default: "pre_approved" },
        },
        workers: { count: { command: sh("wc -c < /attachments/c.txt"), description: "Counts." } },
        files: { "in/a.txt": "hello " },
      },
    );
    const result = await agents.run();
    expect(result).toMatchObject({
      status: "succeeded",
      output: "It has that many.",
      error: null,
      agent: { model, steps: 5, tokens: { input: 60, output: 25, estimated: false }, costUsd: null },
      calls: [{ worker: "count", status: "succeeded", stdout: "29\n" }],
    });
    expect(await readFile(join(agents.project.dir, "out/c.txt"), "utf8")).toBe("hello written, grüße 世界");
    // The first two are at once, and end in whichever order.
    expect(Object.fromEntries(agents.codes())).toEqual({
      list_files: null,
      read_file: null,
      write_file: null,
      exec: null,
      count: null,
    });
    const [first, second, , , last] = agents.server.requests;
    expect(first?.key).toBe(KEY);
    expect(first?.system).toContain("Readable paths: /in, /out. Writable paths: /out.");
    expect(first?.tools.map(({ name }) => name)).toEqual(["list_files", "read_file", "write_file", "exec", "count"]);
    expect(JSON.stringify(second?.messages)).toContain("hello ");
    expect(JSON.stringify(last?.messages)).toContain("29");
    expect(await agents.project.traces()).toEqual([]);
  });

  it.each(passingAt(spoken))("goes on after %s, as if it had not been", async (_, behaviour) => {
    await using agents = await servedAgents(
      spoken,
      [asks(["list_files", { path: "/" }]), behaviour, says("There is nothing.")],
      { agent: { tools: ["list_files"] } },
    );
    expect(await agents.run()).toMatchObject({
      status: "succeeded",
      output: "There is nothing.",
      stdout: "There is nothing.\n",
      agent: { steps: 2 },
    });
    expect(agents.acts().map(({ kind }) => kind)).toEqual(["step", "call", "called", "step", "retry"]);
    const [, failed, again] = agents.server.requests;
    expect(agents.server.requests).toHaveLength(3);
    expect(again?.messages).toEqual(failed?.messages);
  });

  it("does nothing of an answer that broke off after its first call", async () => {
    const twice = calls(
      ["write_file", { path: "/out/lost", content: "x" }],
      ["write_file", { path: "/out/long", content: "long ".repeat(100) }],
    );
    await using agents = await servedAgents(
      spoken,
      [{ type: "cut", after: 60, turn: twice }, { type: "stop-short", after: 60, turn: twice }, says("Nothing done.")],
      { agent: WRITER },
    );
    expect(await agents.run()).toMatchObject({ status: "succeeded", agent: { steps: 1, tokens: { estimated: true } } });
    expect(agents.codes()).toEqual([]);
    expect(await readdir(join(agents.project.dir, "out"))).toEqual([]);
  });

  it.each(isAnother ? [[401]] : [[400], [401], [404]])(
    "gives up at once where it is refused with %i, and says so",
    async (status) => {
      await using agents = await servedAgents(spoken, () => ({ type: "status", status }));
      const result = await agents.run();
      expect(result).toMatchObject({
        status: "failed",
        output: null,
        exitCode: null,
        error: {
          code: "MODEL_REFUSED",
          message: `The provider answered with HTTP status ${status}: The server answers ${status}.`,
        },
        agent: { model, steps: 1, tokens: { input: 0, output: 0, estimated: false } },
      });
      expect(agents.server.requests).toHaveLength(1);
    },
  );

  it("gives up where it fails for good, where it is asked to wait longer than anybody does, and tells no key", async () => {
    await using agents = await servedAgents(spoken, (_, index) =>
      index < 3
        ? { type: "status", status: 503 }
        : index === 3
          ? { type: "status", status: 429, headers: { "retry-after": "3600" } }
          : { type: "echo-key", where: "error" },
    );
    const failed = await agents.run();
    expect(failed).toMatchObject({ status: "failed", error: { code: "MODEL_UNAVAILABLE" }, agent: { steps: 1 } });
    expect(agents.server.requests).toHaveLength(3);
    expect(await agents.run()).toMatchObject({ status: "failed", error: { code: "MODEL_UNAVAILABLE" } });
    expect(agents.server.requests).toHaveLength(4);
    const refused = await agents.run();
    expect(refused).toMatchObject({ status: "failed", error: { code: "MODEL_REFUSED" } });
    expect(refused.error?.message).toContain("[secret]");
    expect(JSON.stringify(refused)).not.toContain("canary");
  });

  const silent: readonly (readonly [how: string, Behaviour])[] = [
    ["stalls within its text", { type: "stall", after: 9, turn: LONG }],
    ["never answers", { type: "hang" }],
  ];
  it.each(isAnother ? silent.slice(0, 1) : silent)(
    "runs out of its time where the server %s, and hangs up",
    async (_, behaviour) => {
      const agent = { limits: { timeout: "2s" } };
      await using agents = await servedAgents(spoken, [behaviour], { agent, maxSilenceMs: 60_000 });
      expect(await agents.run()).toMatchObject({
        status: "timed_out",
        output: null,
        error: { code: "TIMED_OUT" },
        agent: { model, steps: 1 },
      });
      expect(await agents.server.requests[0]?.ended).toBe("broken");
    },
  );

  it("is cancelled in the middle of an answer, and hangs up", async () => {
    const stop = new AbortController();
    await using agents = await servedAgents(spoken, () => {
      setTimeout(() => stop.abort(), 200);
      return { type: "stall", after: 9, turn: LONG };
    });
    expect(await agents.run("a", { signal: stop.signal })).toMatchObject({ status: "cancelled", output: null });
    expect(await agents.server.requests[0]?.ended).toBe("broken");
  });

  it.each([
    ["length", "ANSWER_CUT"],
    ["content_filter", "MODEL_DECLINED"],
  ] as const)("does not take for an answer what ended by %s", async (finish, code) => {
    await using agents = await servedAgents(spoken, [says("So far", { finish })]);
    expect(await agents.run()).toMatchObject({ status: "failed", output: null, stdout: "So far\n", error: { code } });
  });

  it("tells the model what is wrong with calls that cannot be, and goes on", async () => {
    await using agents = await servedAgents(
      spoken,
      [
        { type: "turn", turn: { ...calls(["write_file", {}]), rawArguments: '{"path": nope' } },
        asks(["no_such_tool", { a: 1 }], ["write_file", { path: "/out/a.txt", content: "x" }]),
        asks(["write_file", { path: 7 }], ["write_file", ["a list"]]),
        says("Understood."),
      ],
      { agent: WRITER },
    );
    expect(await agents.run()).toMatchObject({ status: "succeeded", output: "Understood." });
    expect(agents.codes()).toEqual([
      ["write_file", "BAD_INPUT"],
      ["no_such_tool", "NO_SUCH_TOOL"],
      ["write_file", null],
      ["write_file", "BAD_INPUT"],
      ["write_file", "BAD_INPUT"],
    ]);
    const told = agents.server.requests.map(({ messages }) => JSON.stringify(messages.slice(-2)));
    expect(told[1]).toContain("The input of write_file could not be read");
    expect(told[2]).toContain("There is no tool");
    expect(told[2]).toContain("The tools are: write_file");
    expect(await readFile(join(agents.project.dir, "out/a.txt"), "utf8")).toBe("x");
  });

  it("shows a worker's input schema so that what its parts point to is found", async () => {
    const input_schema = {
      type: "object",
      properties: { page: { $ref: "#/$defs/page" } },
      required: ["page"],
      $defs: { page: { type: "integer", minimum: 1 } },
    };
    await using agents = await servedAgents(
      spoken,
      [asks(["pager", { input: { page: 0 } }]), asks(["pager", { input: { page: 7 } }]), says("Page 7.")],
      { agent: { calls: ["pager"] }, workers: { pager: { command: sh("jq .page"), input_schema } } },
    );
    expect(await agents.run()).toMatchObject({
      status: "succeeded",
      calls: [{ status: "refused" }, { stdout: "7\n" }],
    });
    expect(agents.codes()).toEqual([
      ["pager", "INPUT_NOT_VALID"],
      ["pager", null],
    ]);
    expect(agents.server.requests[0]?.tools).toMatchObject([
      {
        name: "pager",
        schema: {
          properties: { input: { properties: { page: { $ref: "#/$defs/page" } } } },
          required: ["input"],
          $defs: input_schema.$defs,
        },
      },
    ]);
  });

  it.skipIf(isAnother)("goes on where its transcript cannot be kept, and a person is told", async () => {
    await using agents = await servedAgents(spoken, [says("Done.")]);
    await writeFile(join(agents.project.stateDir, "transcripts"), "a file in its place");
    expect(await agents.run()).toMatchObject({ status: "succeeded", output: "Done." });
    const troubles = agents.project.events.flatMap((event) => (event.type === "trouble" ? [event.detail] : []));
    expect(troubles).toMatchObject([expect.stringMatching(/^the transcript of run .* cannot be written: /)]);
  });

  it.skipIf(isAnother)("asks again for an answer that is not as `output_schema` has it", async () => {
    const output_schema = { type: "object", required: ["n"], properties: { n: { type: "integer" } } };
    await using agents = await servedAgents(
      spoken,
      [says("Three."), says('{"n": "3"}'), says('```json\n{"n": 3}\n```')],
      { agent: { output_schema } },
    );
    expect(await agents.run()).toMatchObject({ status: "succeeded", output: { n: 3 }, agent: { steps: 3 } });
    expect(JSON.stringify(agents.server.requests[2]?.messages)).toContain("/n must be integer");
  });

  it.skipIf(isAnother)("takes part with others: twenty at once, each with its own conversation", async () => {
    await using agents = await servedAgents(
      spoken,
      ({ messages }) => {
        const sent = JSON.stringify(messages);
        const [number = ""] = /number-\d+/.exec(sent) ?? [];
        if (sent.includes("is written") || sent.includes(`/out/${number}`)) return says(number);
        return asks(["write_file", { path: `/out/${number}`, content: number }]);
      },
      { agent: WRITER },
    );
    const numbers = Array.from({ length: 20 }, (_, index) => `number-${index}`);
    const results = await Promise.all(numbers.map((input) => agents.run("a", { input })));
    expect(results.map(({ output }) => output)).toEqual(numbers);
    for (const { agent } of results) expect(agent).toMatchObject({ steps: 2, tokens: { input: 24, output: 10 } });
    expect((await readdir(join(agents.project.dir, "out"))).toSorted()).toEqual(numbers.toSorted());
  });
});

/** A picture of one pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

describe.each([
  ["anthropic", true, [true]],
  ["openai", true, [true]],
  ["openai-compatible", true, [false]],
  ["openai-compatible", false, []],
  ["anthropic", false, []],
] as const)("an image that an agent reads, for %s with images: %s", (api, images, inToolResult) => {
  it(inToolResult.length > 0 ? "reaches the model as an image" : "is told, and not shown", async () => {
    const spoken = APIS.find((one) => one.api === api);
    if (spoken === undefined) throw new Error(`nobody speaks ${api}`);
    await using agents = await servedAgents(
      spoken,
      [asks(["read_file", { path: "/in/dot.png" }], ["read_file", { path: "/in/a.txt" }]), says("A dot.")],
      {
        agent: { tools: ["read_file"], sandbox: { zones: [{ name: "in" }] } },
        provider: { images },
        files: { "in/a.txt": "beside it" },
      },
    );
    await writeFile(join(agents.project.dir, "in/dot.png"), Buffer.from(PNG, "base64"));
    expect(await agents.run()).toMatchObject({ status: "succeeded", output: "A dot." });
    const [, request] = agents.server.requests;
    expect(request?.images).toEqual(
      inToolResult.map((inResult) => ({ mediaType: "image/png", base64: PNG, inToolResult: inResult })),
    );
    const sent = JSON.stringify(request?.messages);
    expect(sent).toContain("beside it");
    expect(sent.includes("this model gets no images")).toBe(!images);
    expect(sent.split(PNG)).toHaveLength(inToolResult.length + 1);
  });
});
