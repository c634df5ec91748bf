import { describe, expect, it } from "vitest";
import { annotate } from "../../../src/cli/github/step-summary.ts";
import { main } from "../../../src/cli/program.ts";
import type { Terminal } from "../../../src/cli/terminal/terminal.ts";
import { carriedOut } from "../../attacks/ci/carried-out.ts";

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

  it("carries out the annotations, one for each finding, and nothing else before or after", () => {
    let stderr = "::stop-commands::abc\n::error::forged\n";
    const evil = {
      rule: "test-failed",
      step: "t",
      line: 3,
      message: "a\n::add-mask::b ##[add-path]c 100%\r::d::",
    } as const;
    const findings = [
      { ...evil, file: "a:b,line=9,c.js" },
      ...Array.from({ length: 20 }, () => ({ ...evil, file: "x" })),
    ];
    const stream = { write: (piece: string) => (stderr += piece) } as unknown as Terminal["stderr"];
    annotate(findings, { stderr: stream, commandsToken: "abc" });
    stderr += "::error::forged later\n";
    const done = carriedOut({ stderr, stdout: "::error::forged output\n" });
    expect(done).toHaveLength(10);
    expect(done[0]).toMatch(/^::error file=a%3Ab%2Cline=9%2Cc\.js,line=3,title=corral ci::a /);
    expect(done.join("")).not.toContain("##[");
    expect(done[0]).toContain("100%25");
    const before = stderr;
    annotate(findings, { stderr: stream });
    expect(stderr).toBe(before);
  });
});
