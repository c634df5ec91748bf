import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CellNetwork, enterFromOutside } from "../../../src/isolation/network/listen-in.ts";
import type { Cell } from "../../../src/isolation/port/cell.ts";
import { HTTP, HTTPS, listeningContract, socketsElsewhere, waitingCell } from "../listening.contract.ts";
import { type Engine, openEngine } from "./engine.ts";

for (const [way, listensByContainer] of [
  ["as root", false],
  ["by a second container", true],
] as const)
  listeningContract(way, async () => {
    const engine = await openEngine();
    return { ...engine, driver: engine.driverOf(engine.maker, { listensByContainer }) };
  });

let engine: Engine;
beforeAll(async () => {
  engine = await openEngine();
});
afterAll(() => engine[Symbol.asyncDispose]());

async function pidOf(cell: Cell): Promise<number> {
  return (await engine.docker.getContainer(cell.id).inspect()).State.Pid;
}

describe("listening in the network of a cell", () => {
  it("accepts nothing in another namespace than the one that the gate reported, opened ahead or not", async () => {
    const { cell } = await waitingCell(engine, "true");
    await using _ = cell;
    const before = socketsElsewhere();
    const accept = (): never => {
      throw new Error("it accepted");
    };
    for (const ahead of [true, false]) {
      const network = new CellNetwork(async (places) => await enterFromOutside(await pidOf(cell), places));
      const places = [HTTP];
      if (ahead) network.openAhead(places);
      expect(await network.listen("4026531840", places, accept)).toMatchObject({ ok: false });
    }
    expect(socketsElsewhere()).toBe(before);
  });

  it("leaves no socket of what was opened ahead and is not used", async () => {
    const { cell } = await waitingCell(engine, "true");
    await using _ = cell;
    const before = socketsElsewhere();
    const network = new CellNetwork(async (places) => await enterFromOutside(await pidOf(cell), places));
    network.openAhead([HTTP, HTTPS]);
    await network[Symbol.asyncDispose]();
    expect(socketsElsewhere()).toBe(before);
  });
});
