import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { eventsFrom, startService, type TestService } from "../../test/serve/service-client.ts";
import { benchProject, sh } from "./served.ts";

/*
 * Many clients at one service: how much memory it takes over time, how long a list takes, and whether a client that follows a run gets
 * every event. `node bench/service/load.ts --seconds 300 --clients 50 --runs 20 --silent 5`
 */

export interface LoadOptions {
  readonly seconds: number;
  /** Clients that list and follow. */
  readonly clients: number;
  /** Runs at once. */
  readonly runs: number;
  /** Clients that ask for events and never read them. */
  readonly silent: number;
  readonly print: (line: string) => void;
}

export interface LoadReport {
  /** MiB, from the first look to the last. */
  readonly rss: readonly number[];
  readonly runs: number;
  /** Runs whose events a client followed from the first to the last, over broken connections. */
  readonly followed: number;
  readonly lost: readonly string[];
  readonly lists: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** 99 of 100, by what is listed. */
  readonly p99MsOf: Readonly<Record<string, number>>;
  readonly errors: readonly string[];
  /** MiB of the heap and of buffers that are in use after a collection, from the first look to the last. */
  readonly heap: readonly number[];
  /** What is in use in the last quarter is as much as in the second, but for a tenth and 16 MiB. */
  readonly isFlat: boolean;
}

const LINES = 60;
/** Of 60 looks: a collection takes some 100 ms. */
const COLLECTED_EVERY = 3;
const BIG_BYTES = 8 * 1024 ** 2;
/** Of each client, between two requests. */
const PAUSE_MS = 200;
const LISTS = ["/v1/runs?limit=50", "/v1/approvals", "/v1/changesets", "/v1/fleets", "/v1/audit?limit=100"];
const MAX_ERRORS = 20;
/** Of a list, with 50 clients. */
const MOST_P99_MS = 1000;

export async function serviceLoad({ seconds, clients, runs, silent, print }: LoadOptions): Promise<LoadReport> {
  const ticks = sh(`i=0; while [ $i -lt ${LINES} ]; do echo "tick $i"; sleep 0.1; i=$((i+1)); done`);
  const big = sh(`head -c ${BIG_BYTES} /dev/zero | tr '\\0' x | fold -w 200`);
  await using project = await benchProject({}, { ticks, big });
  const heapFile = join(project.dir, "..", "heap");
  const env = { NODE_OPTIONS: `--import=${import.meta.resolve("./heap-reporter.ts")}`, BENCH_HEAP_FILE: heapFile };
  await using service = await startService(project, { args: ["--log-level", "info"], env });
  const timesOf = new Map<string, number[]>();
  const [latencies, errors, lost, rss] = [[] as number[], [] as string[], [] as string[], [] as number[]];
  let heap: readonly number[] = [];
  let [started, followed] = [0, 0];
  const running = new Set<string>();
  const guarded = async (act: () => Promise<void>): Promise<void> => {
    await act().catch((error: Error) => {
      if (errors.length < MAX_ERRORS) errors.push(String(error.message).slice(0, 200));
    });
  };
  const start = async (worker: string): Promise<string> => {
    const { status, json } = await service.ask("POST", "/v1/runs", { body: { worker } });
    if (status !== 202) throw new Error(`a run was not started: ${status} ${JSON.stringify(json)}`);
    started += 1;
    return json.run;
  };
  const printed = await start("big");
  await service.ask("GET", `/v1/runs/${printed}/result?wait=30`);
  // From here: on a busy machine the run above takes seconds.
  const until = performance.now() + seconds * 1000;
  const isOver = (): boolean => performance.now() >= until;

  /** Runs one after another, each followed by a client whose connection breaks now and then. */
  const runner = async (): Promise<void> => {
    while (!isOver()) {
      await guarded(async () => {
        const run = await start("ticks");
        running.add(run);
        const fault = await followedRun(service, run);
        running.delete(run);
        if (fault === null) followed += 1;
        else lost.push(`${run}: ${fault}`);
      });
    }
  };
  const client = async (index: number): Promise<void> => {
    for (let turn = index; !isOver(); turn += 1) {
      await guarded(async () => {
        const began = performance.now();
        const list = LISTS[turn % LISTS.length] ?? "";
        const { status } = await service.ask("GET", list);
        const ms = performance.now() - began;
        latencies.push(ms);
        const times = timesOf.get(list) ?? [];
        timesOf.set(list, times);
        times.push(ms);
        if (status !== 200) throw new Error(`a list answered ${status}`);
        const [some] = running;
        // Some look into a run for a moment.
        if (turn % 7 === 0 && some !== undefined)
          await eventsFrom(await service.open("GET", `/v1/runs/${some}/events`), 5);
      });
      await sleep(PAUSE_MS * (0.5 + Math.random()));
    }
  };
  const neverReads = async (): Promise<void> => {
    while (!isOver()) {
      await guarded(async () => {
        const response = await service.open("GET", `/v1/runs/${printed}/events`);
        response.on("error", () => {});
        response.pause();
        const closed = new Promise((resolve) => response.socket.once("close", resolve));
        await Promise.race([closed, sleep(Math.max(0, until - performance.now()))]);
        response.destroy();
      });
      await sleep(PAUSE_MS);
    }
  };
  const watched = async (): Promise<void> => {
    const pauseMs = Math.max(500, (seconds * 1000) / 60);
    while (!isOver()) {
      rss.push(rssOf(service.child.pid ?? 0));
      // Memory that V8 took and has not given back says nothing: it takes what it is not refused.
      if (rss.length % COLLECTED_EVERY === 0) service.child.kill("SIGUSR2");
      heap = await mebibytesIn(heapFile);
      print(
        `${Math.round(seconds - (until - performance.now()) / 1000)} s: ${rss.at(-1)} MiB (${heap.at(-1) ?? "–"} in use), ${started} runs, ${latencies.length} lists`,
      );
      await sleep(pauseMs);
    }
  };
  const times = (count: number, act: (index: number) => Promise<void>) =>
    Array.from({ length: count }, (_, at) => act(at));
  await Promise.all([...times(runs, runner), ...times(clients, client), ...times(silent, neverReads), watched()]);
  const at = (part: number, of: readonly number[] = latencies): number =>
    Math.round((of.toSorted((a, b) => a - b)[Math.floor(of.length * part)] ?? 0) * 10) / 10;
  const quarter = Math.max(1, Math.floor(heap.length / 4));
  const [early, late] = [medianOf(heap.slice(quarter, 2 * quarter)), medianOf(heap.slice(-quarter))];
  return {
    ...{ rss, heap, runs: started, followed, lost, errors, lists: latencies.length },
    ...{
      p50Ms: at(0.5),
      p99Ms: at(0.99),
      p99MsOf: Object.fromEntries([...timesOf].map(([list, of]) => [list, at(0.99, of)])),
      isFlat: heap.length > 0 && late <= early * 1.1 + 16,
    },
  };
}

/** Follows a run to its end, and breaks the connection twice. Null: nothing was lost, and nothing came twice. */
async function followedRun(service: TestService, run: string): Promise<string | null> {
  let [last, text] = [0, ""];
  const types: string[] = [];
  for (let turn = 0; turn < 100; turn += 1) {
    const headers = last === 0 ? {} : { "last-event-id": String(last) };
    const response: IncomingMessage = await service.open("GET", `/v1/runs/${run}/events`, { headers });
    if (response.statusCode === 204) break;
    if (response.statusCode !== 200) return `events answered ${response.statusCode}`;
    const most = turn < 2 ? 5 + Math.floor(Math.random() * 20) : Number.POSITIVE_INFINITY;
    for (const { id, data } of await eventsFrom(response, most)) {
      if (id <= last) return `event ${id} came after ${last}`;
      last = id;
      types.push(data.type);
      if (data.type === "output") text += data.text;
    }
    response.destroy();
  }
  const expected = Array.from({ length: LINES }, (_, index) => `tick ${index}\n`).join("");
  if (text !== expected) return `output of ${text.length} in place of ${expected.length} characters`;
  return types.at(-1) === "ended" && types[0] === "requested" ? null : `events: ${types.join(" ")}`;
}

/** What is not as it must be; empty: no event was lost, no request failed, memory is flat, and a list is answered soon. */
function faultsOf({ lost, errors, isFlat, followed, runs, p99Ms, heap }: LoadReport): string[] {
  return [
    ...(lost.length === 0 ? [] : [`${lost.length} runs lost events`]),
    ...(followed > 0 ? [] : [`none of ${runs} runs was followed to its end`]),
    ...(errors.length === 0 ? [] : [`${errors.length} requests failed, such as: ${errors[0]}`]),
    ...(isFlat ? [] : [`memory in use grew: ${heap.join(", ")} MiB`]),
    ...(p99Ms <= MOST_P99_MS ? [] : [`99 of 100 lists took up to ${p99Ms} ms, at most ${MOST_P99_MS} are meant`]),
  ];
}

/** Empty if nothing was written yet. */
async function mebibytesIn(file: string): Promise<readonly number[]> {
  const lines = (await readFile(file, "utf8").catch(() => "")).split("\n").slice(0, -1);
  return lines.map((bytes) => Math.round(Number(bytes) / 1024 ** 2));
}

function rssOf(pid: number): number {
  const [, kib = "0"] = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Math.round(Number(kib) / 1024);
}

function medianOf(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      seconds: { type: "string", default: "300" },
      clients: { type: "string", default: "50" },
      runs: { type: "string", default: "20" },
      silent: { type: "string", default: "5" },
    },
  });
  const { seconds, clients, runs, silent } = values;
  const counts = { seconds: Number(seconds), clients: Number(clients), runs: Number(runs), silent: Number(silent) };
  const report = await serviceLoad({ ...counts, print: (line) => process.stdout.write(`${line}\n`) });
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  const faults = faultsOf(report);
  process.stdout.write(`verdict: ${faults.length === 0 ? "met" : `MISSED: ${faults.join("; ")}`}\n`);
  process.exitCode = faults.length === 0 ? 0 : 1;
}
