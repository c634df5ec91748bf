import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { APIS } from "../../agent/provider-apis.ts";
import type { Behaviour, ModelTurn } from "../../agent/servers/behaviour.ts";
import type { RecordedRequest } from "../../agent/servers/recorded-request.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { sh, writable } from "../project-fixture.ts";
import { modelAt, servedAgents } from "./served-agent.ts";

const turn = (made: ModelTurn): Behaviour => ({ type: "turn", turn: made });
const LIST: ModelTurn = { calls: [{ name: "list_files", input: { path: "/" } }], usage: { input: 500, output: 100 } };
const isOf = ({ system }: RecordedRequest, worker: string): boolean => system.includes(`You are the worker ${worker}.`);

describe.each(APIS)("what agents at a server for $api spend", (spoken) => {
  const model = modelAt(spoken);
  /** What is counted at one API is added up in one way. */
  const isAddedUp = spoken !== APIS[0] && !AT_LENGTH;

  it("ends at the limit of tokens, after the answer that went over it, whose calls were done", async () => {
    await using agents = await servedAgents(
      spoken,
      () =>
        turn({
          calls: [{ name: "write_file", input: { path: "/out/a", content: "x" } }],
          usage: { input: 900, output: 100 },
        }),
      { agent: { tools: ["write_file"], sandbox: { zones: [writable("out")] }, limits: { tokens: 1000 } } },
    );
    expect(await agents.run()).toMatchObject({
      status: "failed",
      output: null,
      error: { code: "TOKEN_LIMIT", message: "Agent a reached its limit of 1000 tokens." },
      agent: { steps: 1, tokens: { input: 900, output: 100, estimated: false } },
    });
    expect(await readdir(join(agents.project.dir, "out"))).toEqual(["a"]);
    expect(agents.server.requests).toHaveLength(1);
  });

  it.skipIf(isAddedUp)("ends at the limit of steps", async () => {
    await using agents = await servedAgents(spoken, () => turn(LIST), {
      agent: { tools: ["list_files"], limits: { steps: 2 } },
    });
    expect(await agents.run()).toMatchObject({ status: "failed", error: { code: "STEP_LIMIT" }, agent: { steps: 2 } });
    expect(agents.server.requests).toHaveLength(2);
  });

  it("costs what the project's prices say, and ends at the limit of that", async () => {
    await using agents = await servedAgents(spoken, () => turn(LIST), {
      agent: { tools: ["list_files"], limits: { cost: 0.003 } },
      provider: { prices: { [spoken.model]: { input: 3, output: 5 } } },
    });
    const { status, error, agent } = await agents.run();
    expect({ status, code: error?.code, steps: agent?.steps }).toEqual({
      status: "failed",
      code: "COST_LIMIT",
      steps: 2,
    });
    expect(agent?.costUsd).toBeCloseTo(0.004, 12);
  });

  it.skipIf(isAddedUp)(
    "is no way round a limit of cost to have others do the work on a model whose price nobody knows",
    async () => {
      await using agents = await servedAgents(
        spoken,
        (request) =>
          isOf(request, "a") ? turn({ calls: [{ name: "below", input: {} }] }) : turn({ text: "for nothing" }),
        {
          agent: { calls: ["below"], limits: { cost: 1, steps: 1 } },
          workers: { below: { model: "here/unpriced" } },
          provider: { prices: { [spoken.model]: { input: 3, output: 5 } } },
        },
      );
      expect((await agents.run()).calls).toMatchObject([{ status: "failed", error: { code: "COST_LIMIT" } }]);
      expect(agents.server.requests).toHaveLength(1);
    },
  );

  it.skipIf(isAddedUp).each<[above: string, below: string, costUsd: number | null]>([
    ["here/unpriced", model, null],
    [model, "here/unpriced", null],
    [model, model, 0.00006],
    ["script/s/a.yaml", model, 0.00002],
    ["script/s/a.yaml", "here/unpriced", null],
  ])("is not told as a cost where some of it has no price: %s calls %s", async (above, below, costUsd) => {
    await using agents = await servedAgents(
      spoken,
      (request, index) => {
        const usage = { input: 10, output: 10 };
        const isFirst = isOf(request, "a") && index === 0;
        return turn(isFirst ? { calls: [{ name: "below", input: {} }], usage } : { text: "Done.", usage });
      },
      {
        agent: { model: above, calls: ["below"] },
        workers: { below: { model: below } },
        files: { "s/a.yaml": JSON.stringify([{ calls: [{ below: {} }] }, { say: "Done." }]) },
        provider: { prices: { [spoken.model]: { input: 1, output: 1 } } },
      },
    );
    const { status, agent, calls } = await agents.run();
    expect({ status, costUsd: agent?.costUsd }).toEqual({
      status: "succeeded",
      costUsd: costUsd === null ? null : expect.closeTo(costUsd, 12),
    });
    expect(calls[0]?.agent?.costUsd).toEqual(below === model ? expect.closeTo(0.00002, 12) : null);
  });

  it.skipIf(isAddedUp)(
    "counts the agents that an agent calls, through a command too, and ends them by its own limit",
    async () => {
      const call = (name: string): Behaviour =>
        turn({ calls: [{ name, input: {} }], usage: { input: 100, output: 10 } });
      await using agents = await servedAgents(
        spoken,
        (request) => {
          if (isOf(request, "a")) return call("between");
          return isOf(request, "below") ? turn({ ...LIST, usage: { input: 400, output: 30 } }) : turn({ text: "?" });
        },
        {
          agent: { calls: ["between"], limits: { tokens: 1200 } },
          workers: {
            between: { command: sh('corral-call below "{}" > /dev/null 2>&1; echo came back'), calls: ["below"] },
            below: { model, tools: ["list_files"] },
          },
        },
      );
      const result = await agents.run();
      expect(result).toMatchObject({
        status: "failed",
        error: { code: "TOKEN_LIMIT", message: "Agent a reached its limit of 1200 tokens." },
        agent: { steps: 1, tokens: { input: 1300, output: 100 } },
        calls: [
          {
            worker: "between",
            status: "succeeded",
            calls: [
              {
                worker: "below",
                status: "failed",
                error: { code: "TOKEN_LIMIT", message: "Agent a reached its limit of 1200 tokens." },
                agent: { steps: 3, tokens: { input: 1200, output: 90 } },
              },
            ],
          },
        ],
      });
      expect(result.calls[0]?.agent).toBeUndefined();
    },
  );

  it("is estimated for an answer that broke off, and told as such", async () => {
    const text = "Something of some length that never comes to its end, so that nobody says what it used.";
    await using agents = await servedAgents(spoken, [
      { type: "cut", after: 20, turn: { text } },
      turn({ text: "Well.", usage: { input: 10, output: 2 } }),
    ]);
    const { agent } = await agents.run();
    expect(agent).toMatchObject({ steps: 1, tokens: { estimated: true } });
    expect(agent?.tokens.input).toBeGreaterThan(10 + 50);
    expect(agent?.tokens.output).toBeGreaterThan(2 + 3);
  });

  it("ends at the limit that an answer used up which broke off, and asks for it no more", async () => {
    const long: Behaviour = { type: "cut", after: 4000, turn: { text: "word ".repeat(8000) } };
    await using agents = await servedAgents(spoken, () => long, { agent: { limits: { tokens: 1000 } } });
    expect(await agents.run()).toMatchObject({ status: "failed", error: { code: "TOKEN_LIMIT" }, agent: { steps: 1 } });
    expect(agents.server.requests).toHaveLength(1);
  });

  it("gives nobody anything back, where a server says that it was less than nothing", async () => {
    await using agents = await servedAgents(
      spoken,
      () => turn({ ...LIST, usage: { input: -1_000_000, output: -1_000_000 } }),
      { agent: { tools: ["list_files"], limits: { tokens: 2000 } } },
    );
    const { error, agent } = await agents.run();
    expect(error?.code).toBe("TOKEN_LIMIT");
    expect(agent?.tokens).toMatchObject({ estimated: true, input: expect.any(Number) });
    expect(agent?.tokens.input).toBeGreaterThan(0);
  });

  it.skipIf(isAddedUp)("is counted for two that it calls in one answer, which run beside each other", async () => {
    await using agents = await servedAgents(
      spoken,
      (request, index) => {
        if (!isOf(request, "a")) return turn({ text: "done", usage: { input: 7, output: 3 } });
        if (index > 0) return turn({ text: "both", usage: { input: 1, output: 1 } });
        const names = ["one", "two"];
        return turn({ calls: names.map((name) => ({ name, input: {} })), usage: { input: 1, output: 1 } });
      },
      { agent: { calls: ["one", "two"] }, workers: { one: { model }, two: { model } } },
    );
    const result = await agents.run();
    expect(result).toMatchObject({
      status: "succeeded",
      output: "both",
      agent: { steps: 2, tokens: { input: 16, output: 8 } },
    });
    expect(result.calls.map(({ worker, output }) => [worker, output])).toEqual([
      ["one", "done"],
      ["two", "done"],
    ]);
    const order = agents.project.events.flatMap(({ type, worker }) =>
      worker !== "a" && (type === "requested" || type === "ended") ? [type] : [],
    );
    expect(order).toEqual(["requested", "requested", "ended", "ended"]);
  });
});

it.each<[string, ModelTurn]>([
  ["says nothing of it", { uncounted: true }],
  ["says that it was nothing", { usage: { input: 0, output: 0 } }],
])("what is spent at a server that %s is estimated, and limits hold all the same", async (_, uncounted) => {
  const [, , compatible] = APIS;
  if (compatible === undefined) throw new Error("nobody speaks it");
  await using agents = await servedAgents(compatible, () => turn({ ...LIST, ...uncounted }), {
    agent: { tools: ["list_files"], limits: { tokens: 2000 } },
    provider: { prices: { [compatible.model]: { input: 1, output: 1 } } },
  });
  const { error, agent } = await agents.run();
  expect(error?.code).toBe("TOKEN_LIMIT");
  expect(agent?.tokens.estimated).toBe(true);
  expect(agent?.steps).toBeLessThan(10);
  expect(agent?.costUsd).toBeGreaterThan(0.001);
});
