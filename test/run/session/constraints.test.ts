import { describe, expect, it } from "vitest";
import { openSessionIn } from "./session-fixture.ts";

describe("a directory that shows only some files", () => {
  it("is told to whoever asks what may be done, and where a file is missed", async () => {
    await using s = await openSessionIn({
      workers: { w: { command: ["true"], sandbox: { inherit: true }, shell_rules: { default: "pre_approved" } } },
      files: { "a.md": "A\n", "b.bin": "B\n" },
      sandbox: { root: { root: ".", readonly: true, suffixes: [".md"] }, mode: undefined, zones: undefined },
    });
    const missed = await s.exec("cat a.md b.bin");
    expect(missed).toMatchObject({ stdout: "A\n", exitCode: 1 });
    expect(missed.hints.join()).toContain("In /project only files ending in .md are visible.");
    const view = await s.exec('curl -s --unix-socket "$CORRAL_SOCKET" http://corral/v1/sandbox');
    expect(JSON.parse(view.stdout)).toMatchObject({
      constraints: [{ path: "/project", suffixes: [".md"], maxFileBytes: null }],
    });
  });
});
