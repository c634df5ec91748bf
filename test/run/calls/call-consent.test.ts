import { describe, expect, it } from "vitest";
import type { Approver, Decision } from "../../../src/approval/approver.ts";
import { parseWorker } from "../../../src/declarations/worker/worker.ts";
import { agreedToCall, type Caller } from "../../../src/run/calls/call.ts";
import { describeViolation } from "../../../src/sandbox/wording.ts";
import { mount, project } from "../../sandbox/sandboxes.ts";

const worker = parseWorker("---\ncommand: [w]\n---\n", "workers/w.worker");
const sandbox = project([
  mount("/asks", "ro", { approval: { write: "ask", delete: "ask", call: "ask" } }),
  mount("/open", "ro"),
]);
const caller = { job: { run: "r", root: "r", worker, path: ["w"] }, sandbox } as unknown as Caller;

/** What the model is told of a call for which `decide` gives the answer. */
async function refusal(
  decide: Approver["decide"],
  { input = 1 as unknown, signal = new AbortController().signal } = {},
): Promise<string> {
  const request = { worker: "kid", input } as Parameters<typeof agreedToCall>[0];
  const violations = await agreedToCall(request, [], caller, { approver: { decide } }, signal);
  return violations.map(describeViolation).join();
}

describe("a call that needs consent", () => {
  it("is refused without an answer, with the reason and the directories that ask for it", async () => {
    const answer = (outcome: Decision["outcome"]) => async () => ({ outcome, scope: "once", reason: "no" }) as const;
    const why = "needs approval for a worker that sees /asks: ";
    expect(await refusal(answer("timed_out"))).toContain(`${why}no answer came in time`);
    expect(await refusal(answer("denied"))).toContain(`${why}it was denied: no`);
    expect(await refusal(answer("approved"))).toBe("");
  });

  it("is refused where the run ends first; another failure of the approver stays one", async () => {
    const over = new AbortController();
    const ended = async (): Promise<never> => {
      over.abort();
      throw new Error("aborted");
    };
    expect(await refusal(ended, { signal: over.signal })).toContain("the run ended before there was an answer");
    await expect(refusal(() => Promise.reject(new Error("a bug")))).rejects.toThrow("a bug");
  });

  it("shows the beginning of a long input, and how much more there is", async () => {
    const shown: (string | undefined)[] = [];
    const decide: Approver["decide"] = async ({ input }) => {
      shown.push(input);
      return { outcome: "approved", scope: "once", reason: "" };
    };
    for (const end of ["", "x", "y"]) await refusal(decide, { input: `${"x".repeat(3_998)}${end}` });
    expect(shown.map((text) => text?.slice(3_990))).toEqual([
      `${"x".repeat(9)}"`,
      expect.stringMatching(/^x{10}… and 1 characters more, SHA-256 [0-9a-f]{64}$/),
      expect.stringMatching(/^x{9}y… and 1 characters more, SHA-256 [0-9a-f]{64}$/),
    ]);
    // Otherwise the answer to one of two questions that wait would be that to the other.
    expect(new Set(shown).size).toBe(3);
  });
});
