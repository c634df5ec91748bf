import { describe, expect, it } from "vitest";
import { RunTroubles } from "../../src/fleet/running/fleet-parts.ts";
import type { RunEnvironment } from "../../src/run/model/environment.ts";
import type { RunEvent } from "../../src/run/model/events.ts";

function listened(): { troubles: RunTroubles; tell(root: string, detail: string): void; seen: RunEvent[] } {
  const seen: RunEvent[] = [];
  const troubles = new RunTroubles();
  const { emit } = troubles.listeningIn({
    emit: (event: RunEvent) => void seen.push(event),
  } as unknown as RunEnvironment);
  return {
    troubles,
    seen,
    tell: (root, detail) =>
      emit({ type: "trouble", run: `${root}'s child`, root, parent: root, worker: "w", attachments: [], detail }),
  };
}

describe("the troubles of runs", () => {
  it("are kept by their trees until they are taken, each thing once, and passed on", () => {
    const { troubles, tell, seen } = listened();
    for (const detail of ["a", "b", "a"]) tell("one", detail);
    tell("two", "c");
    expect([troubles.take("one"), troubles.take("one"), troubles.take("two")]).toEqual([["a", "b"], [], ["c"]]);
    expect(seen).toHaveLength(4);
  });

  it("are few, and short, and not kept for ever", () => {
    const { troubles, tell } = listened();
    for (let n = 0; n < 10; n += 1) tell("loud", `${n}`.repeat(10_000));
    expect(troubles.take("loud").map((text) => text.length)).toEqual([500, 500, 500]);
    for (let n = 0; n < 1002; n += 1) tell(`run ${n}`, "x");
    expect([0, 1, 2, 1001].map((n) => troubles.take(`run ${n}`).length)).toEqual([0, 0, 1, 1]);
  });
});
