import { describe, expect, it } from "vitest";
import type { AnswerOf } from "../../../src/operations/contract/table.ts";
import { outcomeText } from "../../../src/serve/web/pages/changesets/changesets.tsx";
import { afterDecision, answersOf, deedOf, neighbour } from "../../../src/serve/web/pages/inbox/question-view.tsx";

type Question = AnswerOf<"approvals.show">["question"];

const question = (given: Partial<Question>): Question => ({
  ...{ run: "r", root: "r", worker: "w", operations: ["write"], paths: ["/out/a"] },
  ...given,
});

describe("a question", () => {
  it.each([
    [{}, "write /out/a"],
    [{ operations: ["write", "delete", "write"], paths: ["/a", "/b"] }, "write and delete 2 paths"],
    [{ operations: ["exec"], paths: [], command: "rm -rf /\ntrue" }, "run rm -rf / …"],
    [{ operations: ["grant_network"], paths: [], to: "a.example:443" }, "be granted to reach a.example:443"],
    [{ operations: ["grant_read"], paths: ["/a"], directory: "/a" }, "be granted to read /a"],
    [{ operations: ["call"], paths: [], callee: "extract" }, "call extract"],
    [{ operations: ["new_one"] }, "new_one /out/a"],
  ])("%j says what is asked: %s", (given, deed) => {
    expect(deedOf(question(given))).toBe(deed);
  });

  it("may be answered as the service says", () => {
    expect(answersOf({ question: question({}), answers: ["no"] })).toEqual(["no"]);
    expect(answersOf({ question: question({ lastingOnly: true }) })).toEqual(["tree", "no"]);
  });
});

describe("the list of questions", () => {
  it("leads to the neighbours, and stays at its ends", () => {
    const ids = ["a", "b", "c"];
    expect([neighbour(ids, "a", 1), neighbour(ids, "c", 1), neighbour(ids, "a", -1)]).toEqual(["b", "c", "a"]);
    expect([neighbour(ids, null, 1), neighbour(ids, "gone", -1), neighbour([], "a", 1)]).toEqual(["a", "c", null]);
  });

  it("shows the next one after a decision, and the one before after the last", () => {
    expect([afterDecision(["a", "b"], "a"), afterDecision(["a", "b"], "b"), afterDecision(["a"], "a")]).toEqual([
      "b",
      "a",
      null,
    ]);
  });
});

describe("the end of an application", () => {
  it("is counted by outcome", () => {
    const changes = ["applied", "conflict", "applied"].map((outcome) => ({ outcome }));
    expect([outcomeText(changes), outcomeText([])]).toEqual(["2 applied, 1 conflict", "nothing was applied"]);
  });
});
