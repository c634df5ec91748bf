import { describe, expect, it } from "vitest";
import type { AnswerOf } from "../../../src/operations/contract/table.ts";
import { compared, isNarrowed } from "../../../src/serve/web/pages/runs/call-tree.tsx";
import { inputOf } from "../../../src/serve/web/pages/workers/workers.tsx";

type Run = AnswerOf<"runs.show">;
type Held = NonNullable<Run["held"]>;

const held = (given: Partial<Held> = {}): Held => ({ mounts: [], network: [], secrets: [], tools: null, ...given });
const side = (given: Partial<Held> = {}, limits: Record<string, number> | null = null) => ({
  held: held(given),
  limits,
});

describe("a call beside its caller", () => {
  it("has narrower mounts by path and by mode, and says what its caller has", () => {
    const caller = side({
      mounts: [
        { path: "/docs", mode: "rw" },
        { path: "/out", mode: "rw" },
      ],
    });
    const call = side({
      mounts: [
        { path: "/docs", mode: "ro" },
        { path: "/out/a", mode: "rw" },
      ],
    });
    expect(compared(call, caller)?.mounts).toEqual([
      { path: "/docs", mode: "ro", change: "narrowed", instead: "/docs rw" },
      { path: "/out/a", mode: "rw", change: "narrowed", instead: "/out rw" },
    ]);
  });

  it("has lost what its caller had alone, and a name that only begins alike is another one", () => {
    const caller = side({
      mounts: [
        { path: "/a", mode: "ro" },
        { path: "/ab", mode: "rw" },
      ],
      secrets: ["key"],
    });
    const call = side({ mounts: [{ path: "/ab", mode: "rw" }] });
    expect(compared(call, caller)?.mounts).toEqual([
      { path: "/ab", mode: "rw", change: "kept" },
      { path: "/a", mode: "ro", change: "lost" },
    ]);
    expect(compared(call, caller)?.secrets).toEqual([{ name: "key", change: "lost" }]);
  });

  it("reaches fewer hosts", () => {
    const caller = side({ network: ["a.example:443", "b.example:443"] });
    expect(compared(side({ network: ["a.example:443"] }), caller)).toMatchObject({
      isNetworkNarrowed: true,
      network: [
        { name: "a.example:443", change: "kept" },
        { name: "b.example:443", change: "lost" },
      ],
    });
    expect(compared(side(), side({ network: "open" }))?.isNetworkNarrowed).toBe(true);
    expect(compared(side(), side())?.isNetworkNarrowed).toBe(false);
    expect(compared(side(), side({ network: null }))?.isNetworkNarrowed).toBe(false);
  });

  it("is narrowed by a lower limit, and not by an equal one", () => {
    const caller = side({}, { memoryBytes: 100, cpus: 1, nofile: 5 });
    const call = (memoryBytes: number) => compared(side({}, { memoryBytes, cpus: 1, nofile: 1 }), caller);
    expect(call(100)).toMatchObject({ limits: [{ name: "memoryBytes" }, { name: "cpus" }] });
    expect([call(100), call(50)].map((one) => one !== null && isNarrowed(one))).toEqual([false, true]);
  });

  it("has nothing to compare as a root, and shows nothing before it starts", () => {
    const root = compared(side({ mounts: [{ path: "/docs", mode: "ro" }] }), null);
    expect(root?.mounts).toEqual([{ path: "/docs", mode: "ro", change: "kept" }]);
    expect(root !== null && isNarrowed(root)).toBe(false);
    expect(compared({ held: null, limits: null }, side())).toBeNull();
  });
});

it.each([
  ["", undefined],
  [" \n", undefined],
  ['{"a": 1}', { a: 1 }],
  [" [1, 2] ", [1, 2]],
  ["12", 12],
  ["null", null],
  ['"text"', "text"],
  ["two words\n", "two words\n"],
  ["12 monkeys", "12 monkeys"],
])("an input that is typed as %j is %j", (text, value) => {
  expect(inputOf(text)).toEqual({ ok: true, value });
});

it.each(['{"a": 1', "[1, 2", '"text', "{a: 1}"])("an input that begins as JSON and is none is not sent: %s", (text) => {
  expect(inputOf(text)).toMatchObject({ ok: false, fault: expect.stringContaining("begins as JSON") });
});
