import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { listCells } from "../../src/operations/machine.ts";
import { eventsFrom, startService } from "../../test/serve/service-client.ts";
import { type BenchProject, benchProject, sh } from "./served.ts";

/*
 * Kills a service again and again in the middle of a fleet, of runs and of a question, and looks for what is lost, double or left.
 * `node bench/service/kill.ts --kills 10 --items 120`
 */

const LOOKS = 40;

export interface KillOptions {
  readonly kills: number;
  readonly items: number;
  readonly print: (line: string) => void;
}

/** Everything that is wrong; empty: nothing is lost, no result and no effect counts twice, nothing is left. */
export async function serviceKills({ kills, items, print }: KillOptions): Promise<string[]> {
  const paths = { out: { root: "out", mode: "rw", stage: true } };
  await using project = await benchProject(
    { sandbox: { paths }, approval: { timeout: "5m" } },
    {
      // Each time that an item is applied adds a line, so an effect that happened twice is seen.
      item: {
        ...sh("read key; sleep 0.3; echo once >> /out/$(echo $key | tr -d '\"')"),
        sandbox: { inherit: true, approval: { write: "pre_approved" } },
      },
      slow: sh("sleep 300"),
      asks: { ...sh("echo asked > /out/asked"), sandbox: { inherit: true } },
    },
  );
  const faults: string[] = [];
  const cut: string[] = [];
  let service = await startService(project);
  const { token } = service;
  const get = async (path: string) => (await service.ask("GET", path)).json;
  const post = async (path: string, body: unknown) => (await service.ask("POST", path, { body })).json;
  const keys = Array.from({ length: items }, (_, index) => `k${index}`);
  const { fleet } = await post("/v1/fleets", {
    ...{ worker: "item", items: keys.map((key) => ({ key })), concurrency: 3, cache: false },
    template: { key: "{key}", input: "{key}" },
  });
  const done = async (): Promise<number> => (await get(`/v1/fleets/${fleet}`)).counts.done;
  for (let kill = 1; kill <= kills; kill += 1) {
    for (const worker of ["slow", "asks"]) cut.push((await post("/v1/runs", { worker })).run);
    const before = await done();
    const enough = Math.min(before + 2, items - 1);
    for (let look = 0; look < 600 && (await done()) < enough; look += 1) await sleep(50);
    await sleep(Math.random() * 500);
    print(`kill ${kill}: ${await done()} of ${items} items done`);
    await service.stop("SIGKILL");
    service = await startService(project, { token });
  }
  const events = await eventsFrom(await service.open("GET", `/v1/fleets/${fleet}/events`));
  const settled = events.filter(({ data }) => data.type === "settled" && data.retryInMs === null);
  const times = Map.groupBy(settled, ({ data }) => data.key as string);
  for (const key of keys) {
    const count = times.get(key)?.length ?? 0;
    if (count !== 1) faults.push(`item ${key} was settled ${count} times`);
    const text = textOf(join(project.dir, "out", key));
    if (text !== "once\n") faults.push(`item ${key} left ${JSON.stringify(text)}`);
  }
  const { counts, state } = await get(`/v1/fleets/${fleet}`);
  if (state !== "done" || counts.done !== items) faults.push(`the fleet is ${state}: ${JSON.stringify(counts)}`);
  for (const run of cut) {
    const { status } = await get(`/v1/runs/${run}`);
    if (status !== "interrupted") faults.push(`run ${run} is ${status}`);
    const own = await eventsFrom(await service.open("GET", `/v1/runs/${run}/events`));
    if (own.at(-1)?.event !== "interrupted") faults.push(`the events of run ${run} end with ${own.at(-1)?.event}`);
  }
  const { approvals } = await get("/v1/approvals");
  if (approvals.length > 0) faults.push(`${approvals.length} questions of killed services wait`);
  await service.stop();
  let left = await leftBy(project);
  // What watches for the death of a service looks again after some seconds.
  for (let look = 0; left.length > 0 && look < LOOKS; look += 1) {
    await sleep(500);
    left = await leftBy(project);
  }
  return [...faults, ...left];
}

/** What is left of a service that has ended. */
async function leftBy({ stateDir, dir }: BenchProject): Promise<string[]> {
  const left = (await listCells({ stateDir, engineEnv: process.env })).map(({ run }) => `the cell of run ${run}`);
  const live = readdirSync(join(stateDir, "live")).map((name) => `the folder live/${name}`);
  const mounts = (textOf("/proc/self/mountinfo") ?? "").split("\n").filter((line) => line.includes(stateDir));
  // A draft is an empty directory that had no name yet; it is removed after ten minutes.
  const runcCells = readdirOrNone(join(stateDir, "runc/cells")).filter((name) => !name.startsWith(".new-"));
  const groups = runcCells.map((name) => `the cell ${name} of runc`);
  const processes = readdirSync("/proc").filter((pid) => {
    const environment = /^\d+$/.test(pid) && pid !== String(process.pid) ? textOf(`/proc/${pid}/environ`) : null;
    return environment?.includes(`CORRAL_STATE_DIR=${stateDir}\0`) || textOf(`/proc/${pid}/cmdline`)?.includes(dir);
  });
  const drafts = readdirOrNone(join(stateDir, "changes")).map((name) => `the changeset ${name}`);
  return [
    ...left,
    ...live,
    ...mounts,
    ...groups,
    ...processes.map((pid) => `process ${pid} ${textOf(`/proc/${pid}/cmdline`)?.replaceAll("\0", " ")}`),
    ...drafts,
  ];
}

function readdirOrNone(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

function textOf(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: { kills: { type: "string", default: "10" }, items: { type: "string", default: "120" } },
  });
  const counts = { kills: Number(values.kills), items: Number(values.items) };
  const faults = await serviceKills({ ...counts, print: (line) => process.stdout.write(`${line}\n`) });
  for (const fault of faults) process.stdout.write(`${fault}\n`);
  const verdict =
    faults.length === 0 ? "met: nothing is lost, counted twice or left" : `MISSED: ${faults.length} faults`;
  process.stdout.write(`verdict: ${verdict}\n`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}
