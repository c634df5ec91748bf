import { describe, expect, it } from "vitest";
import { Disposables } from "../../../src/platform/disposables.ts";

function noted(notes: string[]) {
  return (name: string, fault?: Error): AsyncDisposable => ({
    async [Symbol.asyncDispose]() {
      notes.push(name);
      if (fault !== undefined) throw fault;
    },
  });
}

describe("what is disposed of together", () => {
  it("goes the last first, once, and what needs no waiting as well", async () => {
    const notes: string[] = [];
    const one = noted(notes);
    const held = new Disposables();
    held.use(one("first"));
    held.use({ [Symbol.dispose]: () => void notes.push("second") });
    expect(held.use(one("third"))).toBeDefined();
    await held[Symbol.asyncDispose]();
    await held[Symbol.asyncDispose]();
    expect(notes).toEqual(["third", "second", "first"]);
  });

  it("goes as a whole where one fails, and tells of the first failure", async () => {
    const notes: string[] = [];
    const one = noted(notes);
    const held = new Disposables();
    held.use(one("first", new Error("later")));
    held.use(one("second", new Error("earlier")));
    await expect(held[Symbol.asyncDispose]()).rejects.toThrow("earlier");
    expect(notes).toEqual(["second", "first"]);
  });

  it("moves as a whole: what it was taken from disposes of nothing any more", async () => {
    const notes: string[] = [];
    const held = new Disposables();
    held.use(noted(notes)("first"));
    held.use(noted(notes)("second"));
    const moved = held.move();
    await held[Symbol.asyncDispose]();
    expect(notes).toEqual([]);
    await moved[Symbol.asyncDispose]();
    expect(notes).toEqual(["second", "first"]);
  });
});
