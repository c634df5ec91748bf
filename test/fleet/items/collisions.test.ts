import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { collisionsIn, describeCollisions, type OutputPlace } from "../../../src/fleet/items/path-template.ts";
import { covers, type VirtualPath } from "../../../src/sandbox/virtual-path.ts";

/** As a journal's index does it: a byte that no path has, and that sorts before all others, in the place of slashes. */
async function* sorted(places: readonly OutputPlace[]): AsyncGenerator<OutputPlace> {
  yield* inOrder(places);
}

function inOrder(places: readonly OutputPlace[]): OutputPlace[] {
  const keyOf = ({ path }: OutputPlace) => Buffer.from(path === "/" ? "" : path.replaceAll("/", "\u0000"));
  return places.toSorted((a, b) => Buffer.compare(keyOf(a), keyOf(b)));
}

function place(path: string, key: string): OutputPlace {
  return { path, key };
}

describe("outputs of items", () => {
  it("do not collide where they stand beside each other", async () => {
    expect(
      await collisionsIn(sorted([place("/text/a", "1"), place("/text/a-b", "2"), place("/text/ab", "3")])),
    ).toBeNull();
    expect(await collisionsIn(sorted([]))).toBeNull();
  });

  it("collide where they are equal, or one lies in the other", async () => {
    const places = [place("/text/a/c", "3"), place("/text/a-b", "2"), place("/text/a", "1"), place("/text/a-b", "4")];
    expect(await collisionsIn(sorted(places))).toEqual({
      count: 2,
      first: [
        { path: "/text/a/c", key: "3", with: { path: "/text/a", key: "1" } },
        { path: "/text/a-b", key: "4", with: { path: "/text/a-b", key: "2" } },
      ],
    });
  });

  it("are found behind a path that sorts between as text, and is no part of it", async () => {
    const found = await collisionsIn(sorted([place("/a/c", "inner"), place("/a-b", "other"), place("/a", "outer")]));
    expect(found?.first).toEqual([{ path: "/a/c", key: "inner", with: { path: "/a", key: "outer" } }]);
  });

  it("may be in each other for one and the same item", async () => {
    expect(await collisionsIn(sorted([place("/a", "1"), place("/a/b", "1"), place("/a", "1")]))).toBeNull();
    expect((await collisionsIn(sorted([place("/a", "1"), place("/a/b", "1"), place("/a/b/c", "2")])))?.first).toEqual([
      { path: "/a/b/c", key: "2", with: { path: "/a/b", key: "1" } },
    ]);
  });

  it("all collide with an item that may write everywhere", async () => {
    expect((await collisionsIn(sorted([place("/a", "1"), place("/", "all"), place("/b", "2")])))?.count).toBe(2);
  });

  it("are counted all, and told of up to twenty", async () => {
    const places = Array.from({ length: 100_000 }, (_, index) => place("/same", String(index)));
    const found = await collisionsIn(sorted(places));
    expect(found?.count).toBe(99_999);
    expect(found?.first).toHaveLength(20);
    const told = describeCollisions(found ?? { count: 0, first: [] }).split("\n");
    expect(told[0]).toBe("0 and 1 would both write to /same");
    expect(told.at(-1)).toBe("and 99979 more");
  });

  it("are found as by comparing each with each", async () => {
    const name = fc.constantFrom("a", "a-", "a-b", "b", "a b", "\uFFFD", "\u{1F600}");
    const path = fc.array(name, { maxLength: 4 }).map((names) => `/${names.join("/")}`);
    const places = fc.array(fc.record({ path, key: fc.constantFrom("1", "2", "3") }), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(places, async (all) => {
        const ordered = inOrder(all);
        const expected = ordered.filter((inner, index) =>
          ordered
            .slice(0, index)
            .some((outer) => outer.key !== inner.key && covers(outer.path as VirtualPath, inner.path as VirtualPath)),
        );
        expect((await collisionsIn(sorted(ordered)))?.count ?? 0).toBe(expected.length);
      }),
      { numRuns: 2000 },
    );
  });
});
