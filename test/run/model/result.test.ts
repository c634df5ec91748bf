import { describe, expect, it } from "vitest";
import type { CellExit } from "../../../src/isolation/port/cell.ts";
import { endingOf } from "../../../src/run/model/result.ts";

const exited = (code: number, outOfMemory = false): CellExit => ({
  kind: "exited",
  code,
  outOfMemory,
  usage: { cpuMs: null, memoryBytesPeak: null },
});

describe("endingOf", () => {
  it.each([
    [0, { status: "succeeded", exitCode: 0, signal: null }],
    [1, { status: "failed", exitCode: 1, signal: null }],
    [128, { status: "failed", exitCode: 128, signal: null }],
    [134, { status: "signaled", exitCode: 134, signal: "SIGABRT" }],
    [153, { status: "signaled", exitCode: 153, signal: "SIGXFSZ" }],
    [157, { status: "signaled", exitCode: 157, signal: "SIGIO" }],
    [255, { status: "failed", exitCode: 255, signal: null }],
  ])("tells exit code %i", (code, ending) => {
    expect(endingOf(exited(code), null)).toEqual(ending);
  });

  it("tells a signal from a program that ends with the same code, if its init has said which", () => {
    const of = (code: number, bySignal: boolean): CellExit => ({ ...exited(code), bySignal }) as CellExit;
    expect(endingOf(of(137, true), null)).toEqual({ status: "signaled", exitCode: null, signal: "SIGKILL" });
    expect(endingOf(of(137, false), null)).toEqual({ status: "failed", exitCode: 137, signal: null });
    const timedOut = { status: "timed_out", exitCode: 143, signal: null };
    expect(endingOf(of(143, false), "timed_out")).toEqual(timedOut);
  });

  it("blames memory only on a worker that was itself killed", () => {
    expect(endingOf(exited(137, true), null).status).toBe("oom_killed");
    expect(endingOf(exited(137, false), null)).toEqual({ status: "signaled", exitCode: 137, signal: "SIGKILL" });
    expect(endingOf(exited(1, true), null)).toEqual({ status: "failed", exitCode: 1, signal: null });
    expect(endingOf(exited(0, true), null).status).toBe("succeeded");
  });

  it("tells what Corral did before what the worker then did", () => {
    expect(endingOf(exited(137, true), "timed_out")).toEqual({
      status: "timed_out",
      exitCode: null,
      signal: "SIGKILL",
    });
    expect(endingOf(exited(0), "cancelled")).toEqual({ status: "cancelled", exitCode: 0, signal: null });
  });

  it("makes up nothing where the Engine did not tell", () => {
    const lost = { status: "lost", exitCode: null, signal: null };
    expect(endingOf({ kind: "lost", reason: "gone" }, null)).toEqual(lost);
    expect(endingOf({ kind: "lost", reason: "gone" }, "timed_out")).toEqual(lost);
  });
});
