import { describe, expect, it } from "vitest";
import { APPROVAL_MODES } from "../../src/sandbox/approval.ts";
import { docTable } from "./doc-table.ts";

describe("the table of approval modes", () => {
  it("is the one in docs/formats/approvals.md, in its order", async () => {
    expect(await docTable("docs/formats/approvals.md", ["mode", "if no rule matches"])).toEqual(
      Object.entries(APPROVAL_MODES).map(([mode, { meaning }]) => [`\`${mode}\``, meaning]),
    );
  });
});
