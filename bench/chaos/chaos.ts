import { setTimeout as sleep } from "node:timers/promises";
import { seeded } from "../../test/faults/random.ts";
import { type Evidence, evidenceOf } from "./evidence.ts";
import { type Fault, type FaultName, type FaultPlaces, nextFault } from "./faults.ts";
import { leftBehind } from "./left-behind.ts";
import { linksLeft } from "./links.ts";
import { type ChaosOptions, parseChaosOptions } from "./options.ts";
import { type ChaosPlace, makePlace } from "./place.ts";
import { groupsNamed, mountsBelow } from "./second-engine.ts";
import { unreferredBlobs } from "./unreferred-blobs.ts";

/*
 * A fleet over three machines and two Engines, of which one thing fails every ten seconds; then everything is compared and counted.
 * `node bench/chaos/chaos.ts --items 10000 --seed 1`
 */

const LOOK_MS = 500;
const END_MS = 90_000;
/** More processes that end by themselves mean that the run cannot continue. */
const MAX_ENDINGS = 30;

export interface ChaosReport {
  readonly seed: number;
  readonly seconds: number;
  /** How often each fault happened. */
  readonly happened: Readonly<Record<string, number>>;
  readonly counts: Evidence["counts"] | null;
  /** Everything that is wrong; empty: nothing is lost, counted twice, of a late attempt, or left. */
  readonly faults: readonly string[];
}

/** `over` ends the run early, and everything that it made goes. */
export async function chaos(
  options: ChaosOptions,
  print: (line: string) => void,
  over: AbortSignal,
): Promise<ChaosReport> {
  const startedAt = performance.now();
  const seconds = (): number => Math.round((performance.now() - startedAt) / 1000);
  const faults: string[] = [];
  const happened: Partial<Record<FaultName, number>> = {};
  let counts: Evidence["counts"] | null = null;
  let [base, mark] = ["", ""];
  {
    await using place = await makePlace(options);
    ({ base, mark } = place);
    print(
      `seed ${options.seed}: ${options.items} items, ${place.engine === null ? "one Engine" : "two Engines"}, in ${base}`,
    );
    const held = new Set<string>();
    const { coordinator, machines } = place;
    for (const machine of machines) machine.startAgain();
    coordinator.begin([...mapWords(place), "--concurrency", "1", "--machines"]);
    await begun(place);
    print(`${seconds()} s: fleet ${coordinator.fleet} has begun`);

    const random = seeded(options.seed);
    const running = new Set<Promise<void>>();
    let [nextAt, count] = [performance.now() + 1000 * options.secondsBetween, 0];
    const begin = (fault: Fault): void => {
      count += 1;
      happened[fault.name] = (happened[fault.name] ?? 0) + 1;
      held.add(fault.hits);
      const run = fault
        .run()
        .catch((error: Error) => void faults.push(`${fault.text}: ${error.message}`))
        .finally(() => {
          held.delete(fault.hits);
          running.delete(run);
        });
      running.add(run);
    };
    const isLate = (): boolean => seconds() > 60 * options.minutes;
    while (!(await hasEnded(place, held, faults)) && !isLate() && !over.aborted && faults.length < MAX_ENDINGS) {
      if (performance.now() >= nextAt && (options.mostFaults === null || count < options.mostFaults)) {
        nextAt += 1000 * options.secondsBetween;
        const fault = nextFault(faultPlaces(place), { kinds: options.faults, random, held });
        print(
          `${seconds()} s: ${await doneOf(place)} of ${options.items} done; ${fault?.text ?? "everything has a fault"}`,
        );
        if (fault !== null) begin(fault);
      }
      await sleep(LOOK_MS);
    }
    if (over.aborted) faults.push("it was interrupted");
    if (isLate()) faults.push(`the fleet has not ended after ${options.minutes} minutes`);
    print(`${seconds()} s: ${await doneOf(place)} of ${options.items} done; the last faults end`);
    await Promise.all(running);
    faults.push(...(await drained(place)));
    const printed = await printedBy(place);
    const evidence = evidenceOf(options.items, { ...place, ...printed });
    counts = evidence.counts;
    faults.push(...evidence.faults, ...(await leftBehind({ ...place, processes: processesOf(place) })));
    faults.push(...(await unreferredBlobs(place)));
  }
  faults.push(...(await linksLeft(mark)), ...mountsBelow(base).map((at) => `the mount ${at} is left`));
  faults.push(...(await groupsNamed(`corral-${mark}`)).map((at) => `the control group ${at} is left`));
  return { seed: options.seed, seconds: seconds(), happened, counts, faults };
}

function mapWords({ base }: ChaosPlace): string[] {
  return ["map", "mark", "--manifest", `${base}/items.jsonl`, "--input", '{"n":"{n}"}', "--no-cache"];
}

function faultPlaces({ machines, coordinator, postgres, engine }: ChaosPlace): FaultPlaces {
  return { machines, coordinator, postgres, engine };
}

function processesOf({ coordinator, machines }: ChaosPlace) {
  return [coordinator, ...machines].map(({ processes }) => processes);
}

async function begun({ coordinator }: ChaosPlace): Promise<void> {
  const { processes } = coordinator;
  while (coordinator.fleet === null) {
    if (!processes.isRunning) throw new Error(`the coordinator does not begin: ${processes.errors()}`);
    await sleep(LOOK_MS);
  }
}

/** Nothing may end by itself, also if it was started while its Engine or the queue was away. What does is a fault, and starts again. */
async function hasEnded(place: ChaosPlace, held: ReadonlySet<string>, faults: string[]): Promise<boolean> {
  const { coordinator, machines } = place;
  for (const machine of machines) {
    if (held.has(machine.name) || machine.processes.isRunning) continue;
    faults.push(`corral work of ${machine.name} ended by itself with ${await machine.processes.ended}`);
    machine.startAgain();
  }
  if (held.has(coordinator.name) || coordinator.processes.isRunning) return false;
  const [fleet] = await place.db.query<{ state: string }>("SELECT state FROM corral.fleets");
  if (fleet?.state === "done") return true;
  faults.push(
    `the coordinator ended by itself with ${await coordinator.processes.ended}, and the fleet is ${fleet?.state}`,
  );
  coordinator.startAgain();
  return false;
}

async function doneOf({ db }: ChaosPlace): Promise<string> {
  const asked = db.query<{ n: number }>("SELECT count(*)::int AS n FROM corral.items WHERE state = 'done'");
  const rows = await Promise.race([asked.catch(() => []), sleep(2000, [], { ref: false })]);
  return String(rows[0]?.n ?? "?");
}

/** Ends the machines as a user does. */
async function drained({ machines }: ChaosPlace): Promise<string[]> {
  const ends = machines.map(async (machine) => {
    const { name, processes } = machine;
    await machine.hasBegun();
    processes.kill("SIGTERM");
    const code = await Promise.race([processes.ended, sleep(END_MS, "nothing", { ref: false })]);
    return code === 0 ? [] : [`corral work of ${name} ended with ${code} after SIGTERM`];
  });
  return (await Promise.all(ends)).flat();
}

/** What the coordinator's command line says of the fleet. */
async function printedBy({ coordinator, base }: ChaosPlace) {
  const { processes, fleet } = coordinator;
  const results = await processes.aside(["fleet", "results", fleet ?? "", "--jsonl"], `${base}/results`);
  const audit = await processes.aside(["audit", "--type", "changes_applied", "--json"], `${base}/audit`);
  return { results, audit };
}

function verdictOf({ faults }: ChaosReport): string {
  if (faults.length > 0) return `MISSED: ${faults.length} faults`;
  return "met: nothing is lost, recorded twice, of a late attempt, or left behind";
}

if (import.meta.main) {
  const options = parseChaosOptions(process.argv.slice(2));
  const print = (line: string): void => void (options.json ? process.stderr : process.stdout).write(`${line}\n`);
  const over = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => over.abort());
  const report = await chaos(options, print, over.signal);
  for (const fault of report.faults) print(fault);
  print(`faults: ${JSON.stringify(report.happened)}`);
  print(`counts: ${JSON.stringify(report.counts)}`);
  print(`verdict: ${verdictOf(report)}, in ${report.seconds} s with seed ${report.seed}`);
  if (options.json) process.stdout.write(`${JSON.stringify({ ...report, verdict: verdictOf(report) })}\n`);
  process.exitCode = report.faults.length === 0 ? 0 : 1;
}
