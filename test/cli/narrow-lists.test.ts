import { describe, expect, it } from "vitest";
import { printList, type Terminal } from "../../src/cli/terminal/terminal.ts";

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
