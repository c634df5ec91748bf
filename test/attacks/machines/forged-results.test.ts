import { describe, expect, it } from "vitest";
import type { Delivered } from "../../../src/fleet/model/work.ts";
import { deliveredResult } from "../../../src/fleet/running/deliveries.ts";
import { SchemaChecks } from "../../../src/run/model/job.ts";

const NUMBER = { type: "object", properties: { total: { type: "number" } }, required: ["total"] };
const ASKS = { name: "w", output: "json", outputSchema: NUMBER } as const;
const TEXT = { name: "w", output: "text" } as const;

/** What a machine delivers that says whatever it likes. */
async function taken(output: unknown, worker: Parameters<typeof deliveredResult>[2], more: object = {}) {
  const result = {
    ...{ status: "succeeded", exitCode: 0, output, error: null, stderrLine: null, startedAt: null },
    ...{ endedAt: new Date().toISOString(), durationMs: 1, memoryBytesPeak: null, ...more },
  };
  const delivered = { index: 0, key: "k", run: "r", attempt: 1, machine: "m", result, streams: null };
  return await deliveredResult(delivered as unknown as Delivered, {}, worker, new SchemaChecks());
}

function nested(levels: number): unknown {
  let value: unknown = 0;
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

describe("the output that a hostile machine delivers", () => {
  it("succeeds only if it is what the worker declares", async () => {
    expect(await taken({ total: 1 }, ASKS)).toMatchObject({ result: { status: "succeeded", output: { total: 1 } } });
  });

  it.each([
    ["of another type", "1"],
    ["without what is required", {}],
    ["with a field of another type", { total: "1" }],
    ["that is nothing", null],
  ])("%s fails its item, as it does without machines", async (_, output) => {
    const error = { code: "OUTPUT_NOT_VALID", message: expect.stringContaining("`output_schema`") };
    expect(await taken(output, ASKS)).toMatchObject({ result: { status: "failed", error } });
  });

  it("stays a failure if the machine says that it failed, whatever the output is", async () => {
    const error = { code: "FAILED", message: "no" };
    expect(await taken({}, ASKS, { status: "failed", error })).toMatchObject({ result: { status: "failed", error } });
  });

  it.each([undefined, null, "x", 1, [], {}])("is no result if all that it delivers is %j", async (result) => {
    const delivered = { index: 0, key: "k", run: "r", attempt: 1, machine: "m", result, streams: null };
    expect(await deliveredResult(delivered as unknown as Delivered, {}, TEXT, new SchemaChecks())).toBeNull();
  });

  it.each([
    ["an object of a worker that prints text", { a: 1 }, TEXT],
    ["a list of a worker that prints text", [], TEXT],
    ["JSON that is nested too deep", nested(100_000), { ...ASKS, outputSchema: {} }],
    ["JSON of too many values", Array.from({ length: 600_000 }, () => 0), { ...ASKS, outputSchema: {} }],
  ])("is no result if it is %s", async (_, output, worker) => {
    expect(await taken(output, worker)).toBeNull();
  });
});
