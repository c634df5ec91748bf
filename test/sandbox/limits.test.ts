import { describe, expect, it } from "vitest";
import { APPROVAL_MODES } from "../../src/sandbox/approval.ts";
import { LIMITS, limitExcesses, meetLimits } from "../../src/sandbox/limits.ts";
import { docTable } from "./doc-table.ts";

describe("limits", () => {
  it("meet at the smaller of each, and what one of them limits is limited", () => {
    expect(meetLimits({ cpus: 2, pids: 10 }, { cpus: 1, timeoutMs: 5 })).toEqual({ cpus: 1, pids: 10, timeoutMs: 5 });
    expect(meetLimits({}, {})).toEqual({});
  });

  it("are exceeded only where both say something and more is asked", () => {
    expect(limitExcesses({ cpus: 2, pids: 10, timeoutMs: 5 }, { cpus: 1, pids: 10 })).toEqual([
      { limit: "cpus", asked: 2, has: 1 },
    ]);
  });

  it("keep a limit of zero", () => {
    expect(meetLimits({ diskBytes: 0 }, { diskBytes: 5 })).toEqual({ diskBytes: 0 });
    expect(limitExcesses({ diskBytes: 1 }, { diskBytes: 0 })).toHaveLength(1);
  });
});

describe("the table of limits", () => {
  it("is the one in docs/formats/limits.md, in its order", async () => {
    const written = { duration: "a duration", bytes: "a size", number: "a number", count: "a whole number" };
    expect(await docTable("docs/formats/limits.md", ["limit", "written as", "what it limits"])).toEqual(
      Object.values(LIMITS).map(({ key, unit, meaning }) => [`\`${key}\``, written[unit], meaning]),
    );
  });
});

describe("the table of approval modes", () => {
  it("is the one in docs/formats/approvals.md, in its order", async () => {
    expect(await docTable("docs/formats/approvals.md", ["mode", "if no rule matches"])).toEqual(
      Object.entries(APPROVAL_MODES).map(([mode, { meaning }]) => [`\`${mode}\``, meaning]),
    );
  });
});
