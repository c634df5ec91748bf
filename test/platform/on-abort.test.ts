import { describe, expect, it } from "vitest";
import { onAbort } from "../../src/platform/within.ts";

describe("onAbort", () => {
  it("acts when the signal is aborted, and at once if it already is", () => {
    let acted = 0;
    const controller = new AbortController();
    using _ = onAbort(controller.signal, () => {
      acted += 1;
    });
    expect(acted).toBe(0);
    controller.abort();
    expect(acted).toBe(1);
    using __ = onAbort(controller.signal, () => {
      acted += 1;
    });
    expect(acted).toBe(2);
  });

  it("does not act after it is disposed of", () => {
    let acted = 0;
    const controller = new AbortController();
    onAbort(controller.signal, () => {
      acted += 1;
    })[Symbol.dispose]();
    controller.abort();
    expect(acted).toBe(0);
  });
});
