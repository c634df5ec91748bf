import { describe, expect, it } from "vitest";
import { type ShareOwner, Shares } from "../../src/serve/http/admission.ts";

const owner = (key: string, isAdmin = false): ShareOwner => ({ key, token: key, isAdmin });
const none = (): void => {};

describe("what clients share", () => {
  it("is bounded for each owner, and given back", () => {
    const shares = new Shares({ all: 10, each: 4 });
    const part = shares.open(owner("a"), none);
    expect([part.take(3), part.take(2), part.take(1)]).toEqual([true, false, true]);
    expect(shares.open(owner("a"), none).take(1)).toBe(false);
    part[Symbol.dispose]();
    expect(shares.open(owner("a"), none).take(4)).toBe(true);
  });

  it("has room for admins whatever others hold", () => {
    const shares = new Shares({ all: 4, each: 4 });
    shares.open(owner("a"), none).take(4);
    expect(shares.open(owner("admin", true), none).take(4)).toBe(true);
  });

  it("is given up by who holds most, the oldest part first, for one that holds less", () => {
    const shares = new Shares({ all: 4, each: 3 });
    const gone: string[] = [];
    const held = (key: string, name: string): boolean => shares.open(owner(key), () => gone.push(name)).take(1);
    expect([held("a", "a1"), held("a", "a2"), held("a", "a3"), held("b", "b1")]).toEqual([true, true, true, true]);
    expect(held("c", "c1")).toBe(true);
    expect(gone).toEqual(["a1"]);
    // Each would take from another as much as it has itself.
    expect([held("a", "a4"), held("b", "b2"), held("d", "d1")]).toEqual([false, false, true]);
    expect(gone).toEqual(["a1", "a2"]);
  });

  it("is not given up by what has to stay", () => {
    const shares = new Shares({ all: 4, each: 4 });
    const part = shares.open(owner("a"), () => expect.unreachable());
    expect(part.take(4)).toBe(true);
    part.keep();
    expect(shares.open(owner("b"), none).take(1)).toBe(false);
  });
});
