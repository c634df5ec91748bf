import { expect, it } from "vitest";
import { deniedLines } from "../../../src/operations/wording/question-text.ts";
import { type RunResult, unstartedResult } from "../../../src/run/model/result.ts";

function ran(worker: string, hosts: readonly string[], calls: readonly RunResult[] = []): RunResult {
  const result = unstartedResult({ run: "0123456789ab", worker }, "succeeded", { code: "", message: "" });
  const denied = hosts.map((to, index) => ({
    to,
    count: index + 1,
    reason: "host" as const,
    detail: "It is not allowed.",
  }));
  return { ...result, calls, network: { allowed: [], denied, unlisted: 0 } };
}

it("a line for each denied host of a run and of its calls, escaped, up to a limit", () => {
  expect(deniedLines(ran("boss", ["a.example:443"], [ran("kid", ["b.example:80", "\u001b[2Jx:1"])]))).toEqual([
    "corral: network: denied a.example:443 (boss): It is not allowed.",
    "corral: network: denied b.example:80 (kid): It is not allowed.",
    String.raw`corral: network: denied \u{1b}[2Jx:1 ×2 (kid): It is not allowed.`,
  ]);
  const lines = deniedLines(
    ran(
      "many",
      Array.from({ length: 25 }, (_, n) => `${n}.example:1`),
    ),
  );
  expect([lines.length, lines.at(-1)]).toEqual([21, "corral: network: and 5 more"]);
  expect(deniedLines({ ...ran("none", []), network: undefined } as unknown as RunResult)).toEqual([]);
});
