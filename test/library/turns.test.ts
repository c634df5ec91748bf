import { describe, expect, it } from "vitest";
import { Turns } from "../../src/library/tool-functions.ts";

/** Calls that are named; each ends when it is told to. */
function calls() {
  const turns = new Turns();
  const begun: string[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  };
  return {
    begun,
    take: (name: string, isAlone: boolean): Promise<string> =>
      turns.take(isAlone, async () => {
        begun.push(name);
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        ends.set(name, (error) => (error === undefined ? resolve() : reject(error)));
        await promise;
        return name;
      }),
    async end(name: string, error?: Error): Promise<void> {
      ends.get(name)?.(error);
      await settle();
    },
    settle,
  };
}

describe("turns", () => {
  it("begin what changes nothing at once, and what does when all before it have ended", async () => {
    const { begun, take, end, settle } = calls();
    const taken = [take("a", false), take("b", false), take("C", true), take("d", false), take("E", true)];
    await settle();
    expect(begun).toEqual(["a", "b"]);
    await end("b");
    expect(begun).toEqual(["a", "b"]);
    await end("a");
    expect(begun).toEqual(["a", "b", "C"]);
    await end("C");
    expect(begun).toEqual(["a", "b", "C", "d"]);
    await end("d");
    await end("E");
    expect(await Promise.all(taken)).toEqual(["a", "b", "C", "d", "E"]);
  });

  it("go on after one that failed, which fails for its caller alone", async () => {
    const { take, end, settle } = calls();
    const failing = take("A", true);
    const next = take("b", false);
    await settle();
    await Promise.all([expect(failing).rejects.toThrow("broken"), end("A", new Error("broken"))]);
    await end("b");
    expect(await next).toBe("b");
  });
});
