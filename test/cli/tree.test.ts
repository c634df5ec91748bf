import { describe, expect, it } from "vitest";
import { drawTree, type TreeRun } from "../../src/cli/run/tree.ts";
import { refusedResult } from "../../src/run/model/result.ts";

function runOf(worker: string, more: Partial<TreeRun> = {}): TreeRun {
  return {
    worker,
    status: "succeeded",
    exitCode: 0,
    signal: null,
    durationMs: 1500,
    attachments: [],
    mounts: null,
    message: null,
    calls: [],
    unrecorded: 0,
    ...more,
  };
}

describe("drawTree", () => {
  it("shows what each run saw, what it was given, and how it ended", () => {
    const tree = runOf("triage", {
      mounts: [
        { path: "/inbox", mode: "ro" },
        { path: "/text", mode: "rw" },
      ],
      calls: [
        runOf("extract", {
          attachments: ["in.pdf"],
          mounts: [],
          calls: [runOf("count", { status: "signaled", signal: "SIGSEGV", message: "Worker count was ended." })],
        }),
        runOf("nobody", { status: "refused", durationMs: 0, message: "It is not listed.\nIt asks too much." }),
        runOf("late", { status: "timed_out", durationMs: 90_000, message: "It had 90s." }),
      ],
    });
    expect(drawTree(tree).split("\n")).toEqual([
      "✓ triage 1.5s",
      "│   mounts: /inbox (ro), /text (rw)",
      "├─ ✓ extract [in.pdf] 1.5s",
      "│  │   mounts: none",
      "│  └─ ✗ count signaled by SIGSEGV 1.5s",
      "├─ ⊘ nobody refused",
      "│      It is not listed.",
      "│      It asks too much.",
      "└─ ✗ late timed out 90s",
      "       It had 90s.",
    ]);
  });

  it("counts the calls that went well where there are many, and draws every one that did not", () => {
    const calls = Array.from({ length: 300 }, (_, index) =>
      runOf("extract", index % 100 === 7 ? { status: "failed", exitCode: 3 } : {}),
    );
    const lines = drawTree(runOf("triage", { calls }), { maxLines: 10 }).split("\n");
    expect(lines.filter((line) => line.includes("failed with 3"))).toHaveLength(3);
    expect(lines.at(-1)).toBe("└─ ✓ 294 × extract succeeded");
    expect(lines).toHaveLength(8);
  });

  it("keeps a call that went well but whose own call did not", () => {
    const unlucky = runOf("second", { calls: [runOf("third", { status: "denied", message: "No." })] });
    const calls = [unlucky, ...Array.from({ length: 100 }, () => runOf("second"))];
    expect(drawTree(runOf("first", { calls }), { maxLines: 8 })).toContain("third denied");
  });

  it.each([1, 2, 3, 7, 20])("is never higher than %i lines", (maxLines) => {
    const calls = Array.from({ length: 100 }, () => runOf("bad", { status: "failed", exitCode: 1, message: "no" }));
    const lines = drawTree(runOf("root", { calls }), { maxLines }).split("\n");
    expect(lines).toHaveLength(maxLines);
    expect(lines[0]).toContain("root");
  });

  it("says how many calls were not recorded one by one", () => {
    expect(drawTree(runOf("root", { unrecorded: 12 }))).toContain("└─ … and 12 more calls");
  });

  it("lets nothing that a worker chose reach the terminal as a control character", () => {
    const evil = "\u001b[2J\u009b1m\u202eevil\r";
    const tree = runOf("root", {
      calls: [runOf(evil, { status: "refused", message: `${evil} is unknown`, attachments: [evil] })],
      mounts: [{ path: `/attachments/${evil}`, mode: "ro" }],
    });
    const drawn = drawTree(tree);
    expect(drawn).toContain("\\u{1b}[2J\\u{9b}1m\\u{202e}evil\\u{d}");
    expect(drawn.replaceAll("\n", "")).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });

  it("draws the reasons for which a run was refused", () => {
    const { status, error } = refusedResult({ run: "r", worker: "w" }, [
      { code: "CALL_LIMIT", max: 3 },
      { code: "IMAGE_MISSING", image: "nobody/nothing" },
    ]);
    const lines = drawTree(runOf("w", { status, message: error?.message ?? null, durationMs: 0 })).split("\n");
    expect(lines[0]).toBe("⊘ w refused");
    expect(lines[1]).toContain("all of its 3 calls");
    expect(lines[2]).toContain("'nobody/nothing'");
  });
});
