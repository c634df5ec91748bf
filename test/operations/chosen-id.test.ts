import { describe, expect, it } from "vitest";
import { chosenId, type Nameable, RequestError } from "../../src/operations/request-error.ts";

const unknown = () => new RequestError("UNKNOWN_RUN", "it", "there is no such run");

function known(...ids: string[]): Nameable[] {
  return ids.map((id) => ({ id, about: `about ${id}` }));
}

describe("an id that a user names", () => {
  it("is found by a beginning that only one has", () => {
    expect(chosenId("3f", known("3fa0", "4fa0"), unknown)).toBe("3fa0");
  });

  it("is the whole one, even if others begin with it", () => {
    expect(chosenId("3fa0", known("3fa0.2", "3fa0", "3fa01"), unknown)).toBe("3fa0");
  });

  it("is the newest for `latest`", () => {
    expect(chosenId("latest", known("b", "a"), unknown)).toBe("b");
    expect(() => chosenId("latest", [], unknown)).toThrow("there is no such run");
  });

  it("is refused with all candidates if more than one fits", () => {
    const act = () => chosenId("3", known("3fa0", "31", "4"), unknown);
    expect(act).toThrow(expect.objectContaining({ code: "AMBIGUOUS_ID", asked: "3" }));
    expect(act).toThrow(/3fa0 {2}about 3fa0\n {2}31 {2}about 31$/);
  });

  it("lists at most ten candidates, without control characters", () => {
    const many = Array.from({ length: 30 }, (_, index) => ({ id: `a${index}`, about: "\u001b[2J" }));
    const lines = thrownBy(() => chosenId("a", many, unknown)).message.split("\n");
    expect(lines).toHaveLength(12);
    expect(lines[1]).toBe("  a0  \\u{1b}[2J");
  });

  it("is never taken from an empty text, which a script has for an unset variable", () => {
    expect(() => chosenId("", known("3fa0"), unknown)).toThrow("there is no such run");
  });
});

function thrownBy(act: () => unknown): Error {
  try {
    act();
  } catch (error) {
    return error as Error;
  }
  throw new Error("nothing was thrown");
}
