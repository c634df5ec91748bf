import { describe, expect, it } from "vitest";
import type { AuditRecord } from "../../../src/audit/records.ts";
import type { RunEvent } from "../../../src/run/model/events.ts";
import { refusedResult, unstartedResult } from "../../../src/run/model/result.ts";
import { recordedEmit } from "../../../src/run/recorded-run.ts";

const PLACE = { run: "r1", root: "r0", parent: "r0", worker: "w", attachments: ["in.pdf"] };
const OF = { run: "r1", root: "r0", worker: "w" };

function recorded(append?: (record: AuditRecord) => Promise<void>) {
  const records: AuditRecord[] = [];
  const events: RunEvent[] = [];
  const keep = async (record: AuditRecord): Promise<void> => void records.push(record);
  const emit = recordedEmit((event) => void events.push(event), { append: append ?? keep });
  return { emit, records, events };
}

describe("what happens to runs", () => {
  it("is recorded where it is a request or an end, and passed on whatever it is", () => {
    const { emit, records, events } = recorded();
    const output = { type: "output", stream: "stdout", chunk: Buffer.from("secret"), ...PLACE } as const;
    emit({ type: "requested", ...PLACE });
    emit(output);
    emit({ type: "ended", ...PLACE, result: unstartedResult(OF, "cancelled", { code: "CANCELLED", message: "m" }) });
    expect(events).toHaveLength(3);
    expect(records).toEqual([
      { type: "run_requested", ...OF, parent: "r0", attachments: ["in.pdf"] },
      {
        type: "run_ended",
        ...OF,
        status: "cancelled",
        exitCode: null,
        signal: null,
        codes: ["CANCELLED"],
        changes: {},
        durationMs: 0,
      },
    ]);
  });

  it("is recorded with how many of all changes had which outcome, also where a result lists only some of them", () => {
    const { emit, records } = recorded();
    const counts = { applied: 50_000, refused: 0, conflict: 0, denied: 0, held: 2 };
    const result = {
      ...unstartedResult(OF, "cancelled", { code: "C", message: "m" }),
      changeset: { id: null, counts },
    };
    emit({ type: "ended", ...PLACE, result });
    expect(records).toMatchObject([{ type: "run_ended", changes: { applied: 50_000, held: 2 } }]);
    expect(Object.keys(records[0]?.type === "run_ended" ? records[0].changes : {})).toHaveLength(2);
  });

  it("is recorded as a refusal, with the code of every violation, where it is one", () => {
    const { emit, records } = recorded();
    const refused = refusedResult(OF, [
      { code: "READONLY_ESCALATION", by: "project" },
      { code: "CALL_LIMIT", max: 3 },
    ]);
    emit({ type: "ended", ...PLACE, result: refused });
    expect(records).toMatchObject([{ type: "refused", ...OF, codes: ["READONLY_ESCALATION", "CALL_LIMIT"] }]);
    expect(records[0]).toHaveProperty("messages.length", 2);
  });

  it("is recorded with the reason where a run was denied, and where it was refused for no violation", () => {
    const { emit, records } = recorded();
    emit({ type: "ended", ...PLACE, result: unstartedResult(OF, "refused", { code: "NO", message: "because" }) });
    const denied = unstartedResult(OF, "denied", { code: "APPROVAL_TIMED_OUT", message: "nobody answered" });
    emit({ type: "ended", ...PLACE, result: denied });
    expect(records).toMatchObject([
      { type: "refused", codes: ["NO"], messages: ["because"] },
      { type: "run_ended", status: "denied", codes: ["APPROVAL_TIMED_OUT"] },
    ]);
  });

  it("goes on where it cannot be recorded; a person is told once, and again after it could be", async () => {
    const answers = [false, false, true, false];
    const { emit, events } = recorded(async () => {
      if (!answers.shift()) throw new Error("no space");
    });
    for (let count = 0; count < 4; count += 1) {
      emit({ type: "requested", ...PLACE });
      await new Promise(setImmediate);
    }
    expect(events.map(({ type }) => type)).toEqual([
      "requested",
      "trouble",
      "requested",
      "requested",
      "requested",
      "trouble",
    ]);
  });
});
