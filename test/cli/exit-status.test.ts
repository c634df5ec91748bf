import { describe, expect, it } from "vitest";
import { exitStatusOf } from "../../src/cli/terminal/terminal.ts";

const none = { exitCode: null, signal: null };

describe("exitStatusOf", () => {
  it.each([
    [{ ...none, status: "succeeded", exitCode: 0 }, 0],
    [{ ...none, status: "failed", exitCode: 77 }, 77],
    [{ ...none, status: "signaled", signal: "SIGTERM" }, 143],
    [{ ...none, status: "timed_out", exitCode: 0 }, 124],
    [{ ...none, status: "lost" }, 125],
    [{ ...none, status: "refused" }, 126],
    [{ ...none, status: "denied" }, 126],
    [{ ...none, status: "cancelled", signal: "SIGTERM" }, 130],
    [{ ...none, status: "oom_killed", signal: "SIGKILL" }, 137],
    [{ ...none, status: "output_limit", signal: "SIGKILL" }, 153],
    [{ ...none, status: "disk_limit" }, 153],
  ] as const)("of %j is %i", (result, status) => {
    expect(exitStatusOf(result)).toBe(status);
  });

  it("is not 0 where a worker exited with 0 and its output was not what it declares", () => {
    expect(exitStatusOf({ status: "failed", exitCode: 0, signal: null })).toBe(1);
  });
});
