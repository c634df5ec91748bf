import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ModelTokens } from "../../src/agent/events.ts";
import { type Price, Spending } from "../../src/agent/spending.ts";
import type { AgentBudget } from "../../src/declarations/worker/worker-yaml.ts";

const LOOSE: AgentBudget = { steps: 1000, tokens: 1_000_000, costUsd: null };
const PRICE: Price = { input: 1, output: 10 };
const NOTHING = { input: 0, output: 0 };

const limits = fc.record({
  steps: fc.integer({ min: 1, max: 20 }),
  tokens: fc.integer({ min: 1, max: 5000 }),
  costUsd: fc.option(fc.double({ min: 0, max: 0.01, noNaN: true })),
});
/** An agent's limits, and which of those before it calls it; the first one is called by nobody. */
const agents = fc.array(fc.tuple(limits, fc.nat()), { minLength: 1, maxLength: 8 });
const MAX_ANSWER_TOKENS = 400;
const tokens = fc.record({
  input: fc.option(fc.integer({ min: -1000, max: MAX_ANSWER_TOKENS / 2 })),
  output: fc.option(fc.integer({ min: -1000, max: MAX_ANSWER_TOKENS / 2 })),
});
const answers = fc.array(fc.tuple(fc.nat(), tokens), { maxLength: 120 });

interface Agent {
  readonly spending: Spending;
  readonly limits: AgentBudget;
  readonly caller: number | null;
}

function tree(specs: readonly (readonly [AgentBudget, number])[]): Agent[] {
  const made: Agent[] = [];
  for (const [index, [own, pick]] of specs.entries()) {
    const caller = index === 0 ? null : pick % index;
    const above = caller === null ? null : (made[caller]?.spending ?? null);
    made.push({ spending: new Spending(`agent-${index}`, own, above), limits: own, caller });
  }
  return made;
}

describe("what a tree of agents spends", () => {
  it("is never more than any one's limit of tokens and cost and one answer, whoever of it works", () => {
    const estimate = { input: MAX_ANSWER_TOKENS / 2, output: MAX_ANSWER_TOKENS / 2 };
    const maxAnswerUsd = (estimate.input * PRICE.input + estimate.output * PRICE.output) / 1_000_000;
    fc.assert(
      fc.property(agents, answers, (specs, work) => {
        const made = tree(specs);
        for (const [pick, used] of work) {
          const agent = made[pick % made.length];
          if (agent?.spending.takeStep() === null) agent.spending.add(used, estimate, PRICE);
        }
        for (const { spending, limits: own } of made) {
          const { input, output } = spending.used;
          expect(input + output).toBeLessThan(own.tokens + MAX_ANSWER_TOKENS);
          if (own.costUsd !== null) expect(spending.used.costUsd).toBeLessThanOrEqual(own.costUsd + maxAnswerUsd);
          expect(spending.steps).toBeLessThanOrEqual(own.steps);
        }
      }),
    );
  });

  it("is at every agent what it and all below it used, and no answer is forgotten", () => {
    fc.assert(
      fc.property(agents, answers, (specs, work) => {
        const made = tree(specs.map(([, pick]) => [LOOSE, pick]));
        const own = made.map(() => ({ input: 0, output: 0 }));
        for (const [pick, { input, output }] of work) {
          const index = pick % made.length;
          const used = { input: Math.max(0, input ?? 0), output: Math.max(0, output ?? 0) };
          made[index]?.spending.add({ input, output }, NOTHING, PRICE);
          for (let at: number | null = index; at !== null; at = made[at]?.caller ?? null) {
            const sum = own[at];
            if (sum !== undefined) own[at] = { input: sum.input + used.input, output: sum.output + used.output };
          }
        }
        expect(made.map(({ spending }) => spending.used)).toMatchObject(own);
      }),
    );
  });

  it("ends an agent by the limit of one that called it, and says whose it was", () => {
    const boss = new Spending("boss", { ...LOOSE, tokens: 100 }, null);
    const worker = new Spending("worker", LOOSE, boss);
    const beside = new Spending("beside", LOOSE, boss);
    expect(worker.takeStep()).toBeNull();
    worker.add({ input: 60, output: 40 }, NOTHING, null);
    for (const spending of [boss, worker, beside])
      expect(spending.takeStep()).toEqual({
        code: "TOKEN_LIMIT",
        message: "Agent boss reached its limit of 100 tokens.",
      });
  });

  it("counts steps for each agent by itself, and cost where there is a price", () => {
    const boss = new Spending("boss", { steps: 1, tokens: 1000, costUsd: 0.001 }, null);
    const worker = new Spending("worker", { ...LOOSE, steps: 2 }, boss);
    expect([worker.takeStep(), worker.takeStep(), worker.takeStep()?.code]).toEqual([null, null, "STEP_LIMIT"]);
    expect(boss.takeStep()).toBeNull();
    worker.add({ input: 0, output: 100 }, NOTHING, PRICE);
    expect(boss.used.costUsd).toBe(0.001);
    expect(worker.takeStep()).toMatchObject({ code: "COST_LIMIT", message: expect.stringContaining("Agent boss ") });
  });
});

describe("what a provider says that an answer used", () => {
  const spent = (told: ModelTokens): Spending => {
    const spending = new Spending("a", LOOSE, null);
    spending.add(told, { input: 30, output: 7 }, null);
    return spending;
  };

  it("is counted as it was told", () => {
    const spending = spent({ input: 1, output: 2 });
    expect(spending.used).toMatchObject({ input: 1, output: 2 });
    expect(spending.used.isEstimated).toBe(false);
  });

  it.each([[null], [0], [-1_000_000], [Number.NaN], [Number.POSITIVE_INFINITY]])(
    "is estimated where it is %s, and nobody gets back what was used",
    (output) => {
      const spending = spent({ input: 1, output });
      expect(spending.used).toMatchObject({ input: 1, output: 7 });
      expect(spending.used.isEstimated).toBe(true);
    },
  );

  it("stays a number, whatever a provider says that its answers used", () => {
    const spending = new Spending("a", LOOSE, null);
    for (let answer = 0; answer < 3; answer += 1)
      spending.add({ input: Number.MAX_VALUE, output: Number.MAX_VALUE }, { input: 3, output: 4 }, PRICE);
    expect(spending.used).toMatchObject({ input: 9, output: 12, isEstimated: true });
    expect(spending.used.costUsd).toBeCloseTo(0.000129);
  });

  it("makes the whole tree above an estimate, where it is one", () => {
    const boss = new Spending("boss", LOOSE, null);
    new Spending("worker", LOOSE, boss).add({ input: null, output: null }, { input: 3, output: 4 }, null);
    expect(boss.used.isEstimated).toBe(true);
  });
});
