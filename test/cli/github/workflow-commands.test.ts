import { describe, expect, it } from "vitest";
import { main } from "../../../src/cli/program.ts";
import type { Terminal } from "../../../src/cli/terminal/terminal.ts";

async function standardErrorOf(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
  let text = "";
  const stream = (isKept: boolean) => ({ write: (piece: string) => (text += isKept ? piece : "") });
  const terminal = { env, cwd: "/", stdout: stream(false), stderr: stream(true) } as unknown as Terminal;
  await main(args, terminal);
  return text;
}

describe("a runner of GitHub Actions", () => {
  it("is asked to read no commands before anything else is printed, with another token each time", async () => {
    const first = await standardErrorOf(["check", "--project", "/nowhere"], { GITHUB_ACTIONS: "true" });
    const second = await standardErrorOf(["run", "w", "--project", "/nowhere"], { GITHUB_ACTIONS: "true" });
    const tokens = [first, second].map((text) => /^::stop-commands::([0-9a-f]{32})\n/.exec(text)?.[1]);
    expect(tokens).not.toContain(undefined);
    expect(tokens[0]).not.toBe(tokens[1]);
    expect(second.split("\n").length).toBeGreaterThan(2);
  });

  it("is asked nothing if there is none, or if nothing is run", async () => {
    for (const env of [{}, { GITHUB_ACTIONS: "" }, { GITHUB_ACTIONS: "false" }] as Record<string, string>[])
      expect(await standardErrorOf(["check", "--project", "/nowhere"], env)).not.toContain("::");
    expect(await standardErrorOf(["--help"], { GITHUB_ACTIONS: "true" })).toBe("");
  });
});
