import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { CliProject } from "../cli/cli-project.ts";
import { servedProject } from "./served-project.ts";
import { eventsFrom, startService, type TestService } from "./service-client.ts";

let project: CliProject;
let service: TestService;

beforeEach(async () => {
  project = await servedProject();
  service = await startService(project);
});
afterEach(async () => {
  await service?.[Symbol.asyncDispose]();
  await project?.[Symbol.asyncDispose]();
});

const ITEMS = 24;
const startBoth = async () => {
  const { run } = (await service.ask("POST", "/v1/runs", { body: { worker: "slow" } })).json;
  const items = Array.from({ length: ITEMS }, (_, index) => ({ id: `i${index}` }));
  const body = { worker: "brief", items, template: { input: { id: "{id}" } }, concurrency: 2, cache: false };
  const { fleet } = (await service.ask("POST", "/v1/fleets", { body })).json;
  return { run, fleet };
};
const done = async (fleet: string): Promise<number> =>
  (await service.ask("GET", `/v1/fleets/${fleet}`)).json.counts.done;

/** Each item has one result that counts, and is settled once. */
async function expectEachOnce(fleet: string): Promise<void> {
  const events = await eventsFrom(await service.open("GET", `/v1/fleets/${fleet}/events`));
  expect(events.at(-1)?.data).toMatchObject({ type: "ended", summary: { state: "done", done: ITEMS } });
  const settled = events.filter(({ data }) => data.type === "settled" && data.retryInMs === null);
  expect(settled.map(({ data }) => data.key).toSorted()).toEqual(
    Array.from({ length: ITEMS }, (_, index) => `i${index}`).toSorted(),
  );
  const { items } = (await service.ask("GET", `/v1/fleets/${fleet}/items?limit=100`)).json;
  expect(items.map(({ status }: { status: string }) => status)).toEqual(
    Array.from({ length: ITEMS }, () => "succeeded"),
  );
}

describe("a service that is killed", () => {
  it("twice in the middle of a fleet and a run loses nothing, does nothing twice and leaves no cell", async () => {
    const { token } = service;
    const { run, fleet } = await startBoth();
    for (let turn = 1; turn <= 2; turn += 1) {
      const before = await done(fleet);
      await expect.poll(() => done(fleet), { interval: 50 }).toBeGreaterThan(Math.min(before, ITEMS - 4));
      await service.stop("SIGKILL");
      service = await startService(project, { token });
    }
    expect((await service.ask("GET", `/v1/runs/${run}`)).json.status).toBe("interrupted");
    const events = await eventsFrom(await service.open("GET", `/v1/runs/${run}/events`));
    expect(events.at(-1)?.event).toBe("interrupted");
    const result = await service.ask("GET", `/v1/runs/${run}/result`);
    expect([result.status, result.json.error.code]).toEqual([409, "NO_EVENTS"]);
    await expectEachOnce(fleet);
    await expect.poll(() => project.cells()).toEqual([]);
  });
});

describe("a service that is stopped", () => {
  it("cancels runs, ends in time with status 0, and the next one continues the fleet", async () => {
    const { token } = service;
    const { run, fleet } = await startBoth();
    await expect.poll(() => done(fleet), { interval: 50 }).toBeGreaterThan(2);
    const { run: asking } = (await service.ask("POST", "/v1/runs", { body: { worker: "asks" } })).json;
    await expect.poll(async () => (await service.ask("GET", "/v1/approvals")).json.approvals.length).toBe(1);
    const stream = await service.open("GET", `/v1/runs/${run}/events`);
    const following = eventsFrom(stream).catch(() => []);
    expect(await service.stop("SIGTERM")).toBe(0);
    await following;
    expect(await project.cells()).toEqual([]);
    service = await startService(project, { token });
    expect((await service.ask("GET", `/v1/runs/${run}`)).json.status).toBe("cancelled");
    expect((await service.ask("GET", `/v1/runs/${run}/result`)).json).toMatchObject({ status: "cancelled" });
    expect((await service.ask("GET", `/v1/runs/${asking}`)).json.status).not.toBe("running");
    await expectEachOnce(fleet);
  });

  it("does not continue a fleet that a user has cancelled", async () => {
    const { token } = service;
    const { fleet } = await startBoth();
    await service.ask("POST", `/v1/fleets/${fleet}/cancel`);
    await eventsFrom(await service.open("GET", `/v1/fleets/${fleet}/events`));
    await service.stop();
    service = await startService(project, { token });
    expect((await service.ask("GET", `/v1/fleets/${fleet}`)).json.state).toBe("cancelled");
  });
});
