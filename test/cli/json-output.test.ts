import { describe, expect, it } from "vitest";
import { printJson, printJsonLine, type Terminal } from "../../src/cli/terminal/terminal.ts";

const HOSTILE = { "k\u202ey": "a\u009b31m\u007f\u200f\u2028\u{e0041}é\u001b\n", list: ["\u2066", 1, "💡"] };

function printed(isTTY: boolean, print: (terminal: Pick<Terminal, "stdout">) => void): string {
  let text = "";
  const stdout = { isTTY, write: (chunk: string) => (text += chunk) };
  print({ stdout: stdout as unknown as NodeJS.WriteStream });
  return text;
}

describe.each([
  ["a value", printJson],
  ["a line", printJsonLine],
])("%s in JSON", (_, print) => {
  it("cannot control the terminal that shows it, and is the same for a parser", () => {
    const text = printed(true, (terminal) => print(terminal, HOSTILE));
    expect(text).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
    expect(text).toContain("é");
    expect(JSON.parse(text)).toEqual(HOSTILE);
  });

  it("is one line as it is for a program", () => {
    expect(printed(false, (terminal) => print(terminal, HOSTILE))).toBe(`${JSON.stringify(HOSTILE)}\n`);
  });
});
