import { expect, it } from "vitest";
import type { TranscriptEntry } from "../../src/agent/transcript.ts";
import type { SealedRecord } from "../../src/audit/seal.ts";
import { auditTable } from "../../src/cli/trail/audit.ts";
import { transcriptText } from "../../src/cli/trail/transcripts.ts";

it("the audit table has the hosts of a network, refused ones first", () => {
  const egress = { type: "egress", at: "2026-11-22T00:00:00.000Z", run: "aaaaaaaaaaaa", worker: "a" };
  const rows = [
    {
      ...egress,
      allowed: [{ to: "a.example:443", connections: 2 }],
      denied: [{ to: "b.example:1", count: 3, reason: "address" }],
      unlisted: 4,
    },
    { ...egress, allowed: [], denied: [{ to: "b.example:1", count: 1 }], unlisted: 0 },
    { ...egress, allowed: "foreign", denied: [null] },
  ];
  const lines = auditTable(rows as unknown as SealedRecord[]).split("\n");
  expect(lines.slice(1).map((line) => line.split(/ {2,}/).slice(3).join(" | "))).toEqual([
    "network | denied b.example:1 (address) ×3, a.example:443 ×2, and 4 more",
    "network | denied b.example:1 ×1",
    "network | denied - ×-",
  ]);
});

it("the audit table says of a tool what it was used on, and what came of the command or the worker behind it", () => {
  const used = { type: "tool_used", at: "2026-11-22T00:00:00.000Z", run: "aaaaaaaaaaaa", worker: "a", tool: "exec" };
  const rows = [
    { ...used, on: { command: "true" }, ok: true, status: "succeeded", exitCode: 0 },
    { ...used, on: { command: "false" }, ok: true, status: "failed", exitCode: 1 },
    { ...used, tool: "read_file", on: { path: "/a" }, ok: true },
    { ...used, tool: "read_file", on: { path: "/b" }, ok: false, code: "NOT_FOUND", message: "There is none." },
  ];
  const lines = auditTable(rows as unknown as SealedRecord[]).split("\n");
  expect(lines.slice(1).map((line) => line.split(/ {2,}/).slice(3).join(" | "))).toEqual([
    "tool exec true | succeeded",
    "tool exec false | failed, exit code 1",
    "tool read_file /a | done",
    "tool read_file /b | refused: NOT_FOUND There is none.",
  ]);
});

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
