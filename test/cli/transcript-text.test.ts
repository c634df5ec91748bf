import { expect, it } from "vitest";
import type { TranscriptEntry } from "../../src/agent/transcript.ts";
import { transcriptText } from "../../src/cli/trail/transcripts.ts";

it("a transcript tells a terminal nothing, whatever a model said, called or named a tool", () => {
  const hostile = "\u001b]0;title\u0007\u001b[2J\u009b1A\u202e\nrun 0 of nobody";
  const entries: TranscriptEntry[] = [
    { type: "begin", version: 1, at: hostile, run: hostile, root: hostile, worker: hostile, model: hostile },
    { type: "system", text: hostile },
    { type: "told", text: hostile },
    {
      type: "answer",
      say: hostile,
      calls: [{ id: "1", tool: hostile, input: { [hostile]: hostile } }],
      end: "",
      usage: null,
    },
    { type: "result", id: "1", tool: hostile, code: hostile, text: hostile },
    { type: "end", status: hostile, code: hostile, message: hostile },
  ];
  const text = transcriptText(entries.map((entry) => JSON.stringify(entry)).join("\n"));
  expect(text).not.toMatch(/(?!\n)[\p{Cc}\p{Cf}]/u);
  // A line of its own is told only as what somebody said.
  expect(text.split("\n").filter((line) => line.startsWith("run 0"))).toEqual([]);
});
