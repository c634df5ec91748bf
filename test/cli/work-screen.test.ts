import { afterEach, describe, expect, it, vi } from "vitest";
import { WorkScreen } from "../../src/cli/fleet/work.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

afterEach(() => void vi.useRealTimers());

describe("what corral work tells", () => {
  it("counts an item as running from its start to its end, also if it is refused before it starts", () => {
    vi.useFakeTimers();
    const said: string[] = [];
    const stderr = { write: (text: string) => void said.push(text) };
    using screen = new WorkScreen({ stderr, env: {} } as unknown as Terminal, false);
    const name = (index: number) => ({ fleet: "f", index, key: `k${index}`, attempt: 1 });
    for (const index of [1, 2, 3]) screen.see({ type: "started", ...name(index) });
    screen.see({ type: "delivered", status: "refused", durationMs: 0, ...name(4) });
    screen.see({ type: "late", reason: "another attempt counts", ...name(5) });
    screen.see({ type: "given_back", why: "it was ended", hasBegun: true, ...name(3) });
    screen.see({ type: "delivered", status: "succeeded", durationMs: 1, ...name(2) });
    vi.advanceTimersByTime(10_000);
    expect(said.join("")).toContain("corral: 1 running, 2 delivered, 1 of them without success");
    expect(screen.waitingText).toMatch(/^Waiting for 1 running item\. /);
    screen.see({ type: "delivered", status: "succeeded", durationMs: 1, ...name(1) });
    expect(screen.waitingText).toMatch(/^Stopping\. /);
  });
});
