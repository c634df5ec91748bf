import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { listCells } from "../../src/operations/machine.ts";
import { serverPrograms } from "../fleet/postgres/server-fixture.ts";
import type { Reply } from "./description.ts";
import { type QueueService, queueService } from "./queue-service.ts";
import { eventsFrom } from "./service-client.ts";

type Json = Readonly<Record<string, unknown>>;
const HAS_SERVER = serverPrograms() !== null;
let at: QueueService;
const ask = async (path: string): Promise<Reply["json"]> => (await at.service.ask("GET", path)).json;
const order = (body: object): Promise<Reply> =>
  at.service.ask("POST", "/v1/fleets", { body: { cache: false, ...body } });
const items = (...keys: readonly string[]) => keys.map((key) => ({ key }));
const template = { key: "{key}", input: "{key}" };

beforeAll(async () => {
  if (!HAS_SERVER) return;
  at = await queueService();
  await at.join("alpha", "--concurrency", "2", "--label", "gpu");
  await at.join("beta", "--concurrency", "3");
}, 60_000);
afterAll(() => at?.[Symbol.asyncDispose]());

describe.skipIf(!HAS_SERVER)("machines in the API", () => {
  it("are listed, with what each runs, and what a fleet has of them", async () => {
    const { machines, more, hasQueue } = await ask("/v1/machines");
    expect({ more, hasQueue }).toEqual({ more: false, hasQueue: true });
    expect(machines).toMatchObject([
      { name: "alpha", labels: ["gpu"], slots: 2, running: 0, recentRate: null, fleets: [] },
      { name: "beta", labels: [], slots: 3 },
    ]);
    expect((await ask("/v1/machines?limit=1")).more).toBe(true);
    const name = (await ask("/v1/projects")).projects[0].name;

    const { json, status } = await order({
      worker: "long",
      items: items("a", "b", "c"),
      template,
      concurrency: 0,
      machines: { needs: ["gpu"], priority: 7 },
    });
    expect(status, JSON.stringify(json)).toBe(202);
    const { fleet } = json;
    const shown = async () => (await ask(`/v1/fleets/${fleet}`)).machines;
    await expect.poll(shown, { timeout: 30_000 }).toMatchObject([
      { name: "alpha", running: 2, runningInAll: 2, why: null },
      { name: "beta", running: 0, runningInAll: 0, why: "it lacks the label gpu" },
    ]);
    expect((await ask(`/v1/fleets/${fleet}`)).spec.machines).toEqual({ needs: ["gpu"], priority: 7, weight: 1 });
    expect((await ask("/v1/machines")).machines[0]).toMatchObject({
      running: 2,
      fleets: [{ fleet, project: name, running: 2, why: null }],
    });
    const where = (await ask(`/v1/fleets/${fleet}/items`)).items.map(({ machine }: { machine: unknown }) => machine);
    expect(where).toEqual(["alpha", "alpha", null]);
    expect(await ask(`/v1/fleets/${fleet}/item?key=a`)).toMatchObject({ state: "running", machine: "alpha" });

    const metrics = async () => (await at.service.ask("GET", "/metrics")).text;
    const values = async (...names: readonly string[]) => {
      const text = await metrics();
      return names.map((one) => Number(new RegExp(`^corral_${one}{project="${name}"} (\\d+)$`, "m").exec(text)?.[1]));
    };
    await expect
      .poll(() => values("machines", "machine_slots", "fleet_items_elsewhere", "fleet_items_waiting"))
      .toEqual([2, 5, 2, 1]);
    expect(await metrics()).not.toContain("alpha");
    expect((await at.service.ask("POST", `/v1/fleets/${fleet}/cancel`)).json.outcome).toBe("cancelled");
  }, 60_000);

  it("are said of each item that ran on one, and of its earlier attempts", async () => {
    const body = { worker: "brief", items: items("good", "bad"), template, concurrency: 0, machines: true };
    const { fleet } = (await order(body)).json;
    const events = await eventsFrom(await at.service.open("GET", `/v1/fleets/${fleet}/events`));
    const settled = events.filter(({ event }) => event === "settled").map(({ data }) => [data.key, data.machine]);
    expect(settled.toSorted()).toEqual([
      ["bad", expect.stringMatching(/alpha|beta/)],
      ["good", expect.stringMatching(/alpha|beta/)],
    ]);
    const good = await ask(`/v1/fleets/${fleet}/item?key=good`);
    expect(good).toMatchObject({ streams: { stdout: "a document\n" }, result: { machine: good.machine } });
    expect((await ask(`/v1/fleets/${fleet}`)).machines).toEqual([]);
    await at.service.ask("POST", `/v1/fleets/${fleet}/retry`);
    const bad = () => ask(`/v1/fleets/${fleet}/item?key=bad`);
    await expect.poll(bad, { timeout: 30_000 }).toMatchObject({
      state: "done",
      machine: expect.stringMatching(/alpha|beta/),
      attempts: [{ status: "failed", machine: expect.stringMatching(/alpha|beta/) }],
    });
  }, 60_000);

  it("give back what they run at the second Ctrl-C, at once, and leave no cell", async () => {
    const { child, ended, stateDir } = await at.join("gamma", "--concurrency", "2", "--label", "hasty");
    let events = "";
    child.stdout?.on("data", (chunk: string) => (events += chunk));
    const body = { worker: "long", items: items("a", "b"), template, concurrency: 0, machines: { needs: ["hasty"] } };
    const { fleet } = (await order(body)).json;
    const where = async () =>
      (await ask(`/v1/fleets/${fleet}/items`)).items.map((item: Json) => [item.state, item.machine]);
    await expect.poll(where, { timeout: 30_000 }).toEqual(Array(2).fill(["running", "gamma"]));
    // Cells are prepared before their items begin.
    await expect.poll(() => events.split('"started"').length - 1, { timeout: 30_000 }).toBe(2);
    child.kill("SIGINT");
    let said = "";
    child.stderr?.on("data", (chunk: string) => (said += chunk));
    await expect.poll(() => said, { timeout: 30_000 }).toContain("Waiting for 2 running items");
    expect(await where()).toEqual(Array(2).fill(["running", "gamma"]));
    child.kill("SIGINT");
    expect((await ended).status).toBe(130);
    expect(await where()).toEqual(Array(2).fill(["queued", null]));
    expect(await listCells({ stateDir, engineEnv: process.env })).toEqual([]);
    await at.service.ask("POST", `/v1/fleets/${fleet}/cancel`);
  }, 60_000);

  it("run nothing of an order that leaves all items to them without saying which", async () => {
    const { status, json } = await order({ worker: "brief", items: items("x"), concurrency: 0 });
    expect([status, json.error.code]).toEqual([422, "FLEET_REFUSED"]);
    for (const machines of [{ needs: ["no label"] }, { priority: 101 }, { wieght: 1 }])
      expect((await order({ worker: "brief", items: items("x"), machines })).status).toBe(400);
  });
});
