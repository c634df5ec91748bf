import { expect, it } from "vitest";
import { CellRemains, Unremoved } from "../../../src/isolation/engine/cell-remains.ts";

it("looks for processes of a container that could not be removed, also if its run has another cell by then", async () => {
  const unremoved = new Unremoved();
  const options = { docker: {} as never, unremoved };
  const first = new CellRemains(options, "run");
  const id = "a".repeat(64);
  const failure = Object.assign(new Error("bad parameter"), { statusCode: 400 });
  first.container = { id, remove: async () => Promise.reject(failure) } as never;
  await expect(first.remove()).rejects.toThrow("could not be removed");
  expect(new CellRemains(options, "run").isDoubtful).toBe(true);
  expect(unremoved.take(id)).toBe(true);
});
