import { describe, expect, it } from "vitest";
import { parseScript } from "../../../src/agent/open-script.ts";
import { Transcript } from "../../../src/agent/transcript.ts";
import { DeclarationError } from "../../../src/declarations/yaml/problem.ts";

function faultOf(text: string, file: string): string {
  try {
    parseScript(text, file);
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`).join("; ");
  }
  throw new Error("it was taken");
}

describe("a script that a person wrote", () => {
  it("is a list of answers, each with what is said and what is called", () => {
    const text = `- say: I look.
  calls:
    - list_files: { path: /in }
    - read_file: { path: /in/a }
- calls: [{ git_pull: }]
- say: Done.
`;
    expect(parseScript(text, "s.yaml")).toEqual([
      {
        say: "I look.",
        calls: [
          { tool: "list_files", input: { path: "/in" } },
          { tool: "read_file", input: { path: "/in/a" } },
        ],
        usage: null,
      },
      { say: "", calls: [{ tool: "git_pull", input: {} }], usage: null },
      { say: "Done.", calls: [], usage: null },
    ]);
    expect(parseScript("[]", "s.yaml")).toEqual([]);
  });

  it.each([
    ["- say: [", "1:9"],
    ["say: x", "must be a list"],
    ["- say: x\n  shout: y", "2:3 0.shout unknown key `shout`"],
    ["- calls: [{ a: {}, b: {} }]", "must be one tool with its input"],
    ["- calls: [{}]", "must be one tool with its input"],
    ["- calls: [a]", "0.calls.0"],
    ["- say: 7", "0.say"],
    ["- say: &x a\n- say: *x", "alias"],
    [`- say: ${"x".repeat(300_000)}`, "at most 262144 are read"],
    [JSON.stringify(Array(10_001).fill({ say: "x" })), ""],
  ])("is refused where it is %#, with its place", (text, part) => {
    expect(faultOf(text, "s.yaml").toLowerCase()).toContain(part.toLowerCase());
  });

  it("gives no prototype to anything", () => {
    const text = '[{"calls":[{"__proto__":{"polluted":1}}]},{"calls":[{"t":{"__proto__":{"polluted":1}}}]}]';
    let parsed: unknown = null;
    try {
      parsed = parseScript(text, "s.yaml");
    } catch (error) {
      expect(error).toBeInstanceOf(DeclarationError);
    }
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    for (const answer of (parsed ?? []) as { calls: { input: object }[] }[])
      for (const { input } of answer.calls) expect((input as { polluted?: number }).polluted).toBeUndefined();
  });
});

describe("a transcript as a script", () => {
  it("says again what was said in a run, and nothing of the rest", async () => {
    const lines: string[] = [];
    const transcript = new Transcript(
      async (line) => void lines.push(line),
      (text) => text,
    );
    const call = { id: "1", tool: "read_file", input: { path: "/a" }, fault: null };
    const made = { characters: 0, messages: [] };
    await transcript.begin({ run: "r", root: "r", worker: "w", model: "m/x" }, new Date(0));
    await transcript.told("Do it.");
    await transcript.answer({ ...made, text: "I read.", calls: [call], end: "calls", tokens: { input: 3, output: 4 } });
    await transcript.result(call, { ok: true, code: null, text: "content" });
    await transcript.answer({ ...made, text: "Done.", calls: [], end: "stop", tokens: { input: null, output: 4 } });
    await transcript.end("succeeded", null);
    expect(parseScript(lines.join(""), "t.jsonl")).toEqual([
      { say: "I read.", calls: [{ tool: "read_file", input: { path: "/a" } }], usage: { input: 3, output: 4 } },
      { say: "Done.", calls: [], usage: null },
    ]);
  });

  it("may have empty lines, and calls without an input", () => {
    const text = '\n{"type":"answer","calls":[{"tool":"t"}]}\r\n\n';
    expect(parseScript(text, "t.jsonl")).toEqual([{ say: "", calls: [{ tool: "t", input: {} }], usage: null }]);
  });

  it.each([
    ['{"type":"answer"}\n{"type":', "2:1  is not JSON"],
    ["[]", "1:1"],
    ["null", "1:1"],
    ['{"say":"x"}', "1:1"],
    ['{"type":"answer","say":7}', "1:1"],
    ['{"type":"answer","calls":[{"input":{}}]}', "1:1"],
    ['{"type":"answer","usage":{"input":-5,"output":1}}', "1:1"],
    ['{"type":"answer"}\n'.repeat(10_001), "10001:1  has more than 10000 answers"],
  ])("is refused where it is %#, with its line", (text, part) => {
    expect(faultOf(text, "t.jsonl")).toContain(part);
  });
});
