import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { ApprovalRequest, Approver } from "../../../src/approval/approver.ts";
import { memoryEngine } from "../memory-engine.ts";
import { openSessionIn } from "./session-fixture.ts";

/** No question of a tool shows all of it, so it is asked about again. */
const LONG = "x".repeat(5000);

it("shows a change that is in conflict as one that is not applied, and a yes does not cover it", async () => {
  const asked: ApprovalRequest[] = [];
  const agrees: Approver = {
    async decide(request) {
      asked.push(request);
      return { outcome: "approved", scope: "once", reason: "the test says so" };
    },
  };
  await using s = await openSessionIn(
    {
      workers: { w: { command: ["true"], sandbox: { zones: [{ name: "out", mode: "rw" }] } } },
      zones: { out: "rw" },
      files: { "out/a": "a", "out/b": "b" },
    },
    { engine: memoryEngine({ programs: {} }).open, person: agrees },
  );
  for (const path of ["/out/a", "/out/b"]) await s.tool("write_file", { path, content: LONG });
  await writeFile(join(s.project.dir, "out/a"), "of another program");

  asked.length = 0;
  expect(await s.tool("commit_changes", {})).toMatchObject({
    ok: true,
    data: {
      changes: [
        { path: "/out/a", outcome: "conflict", reason: "it was changed since the run began" },
        { path: "/out/b", outcome: "applied" },
      ],
    },
  });
  expect(asked).toMatchObject([{ paths: ["/out/b"] }]);
  expect(asked[0]?.diff).toContain("conflict: modify /out/a: it was changed since the run began");

  // A question about nothing that can be done is not asked.
  expect(await s.tool("commit_changes", {})).toMatchObject({ ok: true, data: { decision: null } });
  expect(await s.finish()).toMatchObject({
    changeset: { id: expect.any(String), counts: { conflict: 1, applied: 0 } },
  });
  expect(asked).toHaveLength(1);
  expect(await readFile(join(s.project.dir, "out/a"), "utf8")).toBe("of another program");
});
