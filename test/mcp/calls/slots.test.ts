import { describe, expect, it } from "vitest";
import { Slots } from "../../../src/mcp/connection/call.ts";

const NEVER = new AbortController().signal;
const begun = () => new Promise((resolve) => setImmediate(resolve));

describe("the places of a client's requests", () => {
  it("are 16, and one more for each holder that waits for people, however many it waits for", async () => {
    const slots = new Slots();
    const held = Promise.withResolvers<void>();
    let count = 0;
    const work = async (): Promise<void> => {
      count += 1;
      await held.promise;
    };
    const all = Array.from({ length: 30 }, () => slots.take(work, NEVER));
    await begun();
    expect(count).toBe(16);
    const answered = Promise.withResolvers<void>();
    const holder = {};
    const waits = [1, 2, 3].map(() => slots.without(holder, () => answered.promise));
    await begun();
    expect(count).toBe(17);
    answered.resolve();
    await Promise.all(waits);
    const further = slots.without({}, () => Promise.reject(new Error("nobody")));
    await expect(further).rejects.toThrow("nobody");
    await begun();
    // Whoever came on top stays; nobody further is let in.
    expect(count).toBe(17);
    held.resolve();
    await Promise.all(all);
    expect(count).toBe(30);
  });
});
