import pc from "picocolors";
import { describe, expect, it } from "vitest";
import { answerIn, questionForm } from "../../../src/mcp/connection/client-approver.ts";
import { type AskedOfPerson, questionText } from "../../../src/operations/wording/question-text.ts";

const GRANT: AskedOfPerson = {
  worker: "w",
  operations: ["grant_read"],
  paths: ["/src"],
  directory: "/src",
  lastingOnly: true,
  runs: 1,
};
const ONCE = { action: "accept", content: { answer: "once" } };
const SESSION = { action: "accept", content: { answer: "session" } };

function choices(question: AskedOfPerson, isShared: boolean): unknown {
  return questionForm(question, isShared)?.requestedSchema.properties.answer;
}

describe("the form that a client shows", () => {
  it("offers a yes for once only where something comes of it, and one that lasts only where nobody shares the session", () => {
    const { lastingOnly: _, ...usual } = GRANT;
    expect(choices(usual, false)).toMatchObject({ enum: ["deny", "once", "session"] });
    expect(choices(usual, true)).toMatchObject({ enum: ["deny", "once"] });
    expect(choices(GRANT, false)).toMatchObject({
      enum: ["deny", "session"],
      description: expect.not.stringContaining("once:"),
    });
    expect([answerIn(ONCE, usual, false), answerIn(ONCE, GRANT, false)]).toEqual(["once", "no"]);
    expect([answerIn(SESSION, usual, true), answerIn(SESSION, GRANT, true)]).toEqual(["once", "no"]);
    expect(answerIn(SESSION, GRANT, false)).toBe("session");
  });

  it("shows every line of a diff and every path, and is none where it cannot", () => {
    const lines = Array.from({ length: 500 }, (_, index) => `+line ${index}.`);
    const paths = Array.from({ length: 500 }, (_, index) => `/out/${index}.`);
    const write: AskedOfPerson = { worker: "w", operations: ["write"], paths, diff: lines.join("\n"), runs: 1 };
    const { message = "" } = questionForm(write, false) ?? {};
    for (const each of [...lines, ...paths]) expect(message).toContain(each);
    expect(questionForm({ ...write, diff: "+line\n".repeat(20_000) }, false)).toBeNull();
    expect(questionForm({ ...write, diff: "+line\n".repeat(16_000) }, false)).toBeNull();
  });

  it("shows what a terminal shows, and is none where that is too long", () => {
    expect(questionForm(GRANT, false)?.message).toContain(questionText(GRANT, 100, pc.createColors(false)).message);
    expect(
      questionForm(
        { ...GRANT, why: "so that ".repeat(100), paths: ["a".repeat(200_000)], directory: `/${"a".repeat(200_000)}` },
        false,
      ),
    ).toBeNull();
  });
});
