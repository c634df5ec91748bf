import { describe, expect, it } from "vitest";
import { exitStatusOf, printJson, printJsonLine, printList, type Terminal } from "../../src/cli/terminal/terminal.ts";

const FLEET = ["0123456789ab", "a-worker-with-a-long-name", "running", "345/1000", "17", "2026-01-31T23:59:59.123Z"];

function listed(stdout: { readonly isTTY: boolean; readonly columns?: number }): string[] {
  let printed = "";
  const terminal = { stdout: { ...stdout, write: (text: string) => (printed += text) } } as unknown as Terminal;
  const head = ["FLEET", "WORKER", "STATE", "DONE", "FAILED", "CREATED"];
  printList(terminal, false, [FLEET], { head, rowOf: (row) => row, none: "" });
  return printed.trimEnd().split("\n");
}

describe("a list", () => {
  it("fits a terminal of 60 columns, and its first column is whole", () => {
    const lines = listed({ isTTY: true, columns: 60 });
    expect(lines.map((line) => line.length).filter((width) => width > 60)).toEqual([]);
    expect(lines[1]).toMatch(/^0123456789ab {2}a-\S*… {2}running {2}345/);
  });

  it("is cut nowhere for a program, or at a wide terminal", () => {
    expect(listed({ isTTY: false })[1]?.split(/ {2,}/)).toEqual(FLEET);
    expect(listed({ isTTY: true, columns: 120 })[1]?.split(/ {2,}/)).toEqual(FLEET);
  });
});

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

const none = { exitCode: null, signal: null };

describe("exitStatusOf", () => {
  it.each([
    [{ ...none, status: "succeeded", exitCode: 0 }, 0],
    [{ ...none, status: "failed", exitCode: 77 }, 77],
    [{ ...none, status: "signaled", signal: "SIGTERM" }, 143],
    [{ ...none, status: "timed_out", exitCode: 0 }, 124],
    [{ ...none, status: "lost" }, 125],
    [{ ...none, status: "refused" }, 126],
    [{ ...none, status: "denied" }, 126],
    [{ ...none, status: "cancelled", signal: "SIGTERM" }, 130],
    [{ ...none, status: "oom_killed", signal: "SIGKILL" }, 137],
    [{ ...none, status: "output_limit", signal: "SIGKILL" }, 153],
    [{ ...none, status: "disk_limit" }, 153],
  ] as const)("of %j is %i", (result, status) => {
    expect(exitStatusOf(result)).toBe(status);
  });

  it("is not 0 where a worker exited with 0 and its output was not what it declares", () => {
    expect(exitStatusOf({ status: "failed", exitCode: 0, signal: null })).toBe(1);
  });
});
