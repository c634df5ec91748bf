import { describe, expect, it } from "vitest";
import { BoundedChecks } from "../../src/declarations/schema/bounded-mismatch.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const checks = new BoundedChecks();
/** A valid value takes a small part of this as well. */
const LIMIT_MS = 1000;

/** What came of it, and how long nothing else of this process could go on at most. */
async function watched(
  check: () => Promise<string | null>,
): Promise<{ mismatch: string | null; stoodStillMs: number }> {
  let last = performance.now();
  let stoodStillMs = 0;
  const look = (): void => {
    stoodStillMs = Math.max(stoodStillMs, performance.now() - last);
    last = performance.now();
  };
  const timer = setInterval(look, 10);
  const mismatch = await check();
  clearInterval(timer);
  look();
  return { mismatch, stoodStillMs };
}

const FOREVER = { pattern: "^(a+)+$" };
const ENDLESS = `${"a".repeat(60)}!`;
const RECURSIVE = {
  anyOf: [1, 2, 3].map((minProperties) => ({
    type: "object",
    minProperties,
    properties: { a: { $ref: "#" } },
    required: ["b"],
  })),
};
const nested = (depth: number): unknown => (depth === 0 ? 1 : { a: nested(depth - 1), b: 1, c: 1 });

describe("a value that is made to be checked for ever", () => {
  it.each([
    ["by a pattern that backtracks", FOREVER, ENDLESS],
    ["by the name of a field", { patternProperties: { "^(a+)+$": {} } }, { [`${"a".repeat(60)}!`]: 1 }],
    [
      "by items of which each is compared with each",
      { uniqueItems: true },
      Array.from({ length: 60_000 }, (_, a) => ({ a })),
    ],
    ["by a schema that goes on in itself", RECURSIVE, nested(30)],
  ])("%s, does not match after a second, and holds up nothing meanwhile", async (_, schema, value) => {
    const soon = new BoundedChecks({ limitMs: LIMIT_MS });
    const { mismatch, stoodStillMs } = await watched(() => soon.mismatch(schema, value));
    expect(mismatch).toMatch(/^it could not be checked within (1 s|512 MB of memory)$/);
    // Less than the check takes: it was on another thread.
    expect(stoodStillMs).toBeLessThan(0.9 * LIMIT_MS);
  });

  it.runIf(AT_LENGTH)("does not match after 5 s if no other limit is set", async () => {
    expect(await checks.mismatch(FOREVER, ENDLESS)).toBe("it could not be checked within 5 s");
  });
});

describe("a check that nobody waits for any more", () => {
  it("ends with its signal, on its thread and before it has one", async () => {
    const ends = new AbortController();
    const forever = () => checks.mismatch(FOREVER, ENDLESS, ends.signal);
    const all = Promise.allSettled(Array.from({ length: 6 }, forever));
    setTimeout(() => ends.abort(new Error("cancelled")), 500);
    for (const check of await all) expect(check).toMatchObject({ reason: { message: "cancelled" } });
  });
});

describe("a value that is checked aside", () => {
  const schema = { type: "object", properties: { id: { type: "string", pattern: "^[a-z]+$" } }, required: ["id"] };

  it("is judged as any other, with the place of each fault", async () => {
    expect(await checks.mismatch(schema, { id: "abc" })).toBeNull();
    expect(await checks.mismatch(schema, { id: "ABC" })).toBe('/id must match pattern "^[a-z]+$"');
    expect(await checks.mismatch(schema, {})).toBe("it must have required property 'id'");
    const large = { type: "array", items: { type: "integer" } };
    expect(await checks.mismatch(large, Array(100_000).fill(1))).toBeNull();
    expect(await checks.mismatch(large, [...Array(100_000).fill(1), "1"])).toBe("/100000 must be integer");
  });

  it("does not hold up others for long, however many there are at once", async () => {
    const all = Array.from({ length: 20 }, () => checks.mismatch(schema, { id: "abc" }));
    expect(await Promise.all(all)).toEqual(Array(20).fill(null));
  });
});
