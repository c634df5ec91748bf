import { isUtf8 } from "node:buffer";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { buffer } from "node:stream/consumers";
import { ApiError } from "../../client/client.ts";
import type { ItemResult } from "../../fleet/model/item.ts";
import { jsonLine } from "../../fleet/report/results-export.ts";
import type { FleetEvent, FleetSummary } from "../../fleet/running/events.ts";
import type { AnswerOf, AskOf, EventOf } from "../../operations/contract/table.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { known } from "../host/at-service.ts";
import { fleetMeant, jsonLinesOf } from "../host/runs.ts";
import { UsageError } from "../terminal/arguments.ts";
import { type AtService, say, type Terminal } from "../terminal/terminal.ts";
import {
  concurrencyOf,
  countIn,
  durationIn,
  type MapOptions,
  OF_ITEMS,
  OF_MANIFESTS,
  priorityIn,
  refuseIdle,
  type WatchOptions,
} from "./map-options.ts";
import { type FleetWatch, type WatchedFleet, watchedFleet } from "./ran-fleet.ts";

/** What one request brings, with room for what JSON makes of it. */
const MAX_MANIFEST_BYTES = 48 * 1024 ** 2;

/** `corral map` at a service. A manifest of this machine goes up; the paths in it, and `--over`, are below the project's folder there. */
export async function mapOverHost(
  worker: string | undefined,
  options: MapOptions,
  service: AtService,
  terminal: Terminal,
): Promise<number> {
  const { over, manifest, fleet } = options;
  if (fleet === undefined && worker === undefined) throw new UsageError("name a worker, or use --fleet NAME");
  if (fleet !== undefined) {
    if (worker !== undefined) throw new UsageError("use either a worker or --fleet NAME, which names its own");
    if (over !== undefined || manifest !== undefined)
      throw new UsageError("--fleet NAME defines the items: omit --over and --manifest");
    refuseIdle(options, [...OF_MANIFESTS, ...OF_ITEMS], "is set in the file of --fleet NAME: change it there");
  } else if ((over === undefined) === (manifest === undefined))
    throw new UsageError("name the items: --over GLOB, or --manifest FILE (- for standard input)");
  if (over !== undefined) {
    refuseIdle(options, OF_MANIFESTS, "works only with --manifest");
    if (over.startsWith("/") || over.split("/").includes(".."))
      throw new UsageError(
        "--over takes a pattern below the folder of the project at the service, such as 'inbox/*.pdf'",
      );
  }
  const sent = manifest === undefined ? {} : { manifest: await sentManifest(manifest, options, terminal) };
  const order = { project: service.project, worker, fleet, over, ...sent, ...howOf(options) };
  return await followedAt(service, options, terminal, async () => {
    const started = await service.client.call("fleets.start", present(order) as AskOf<"fleets.start">);
    for (const note of started.notes) say(terminal, `corral: ${printableLine(note, 500)}`);
    return started;
  });
}

function howOf(options: MapOptions): Partial<AskOf<"fleets.start">> {
  const { attach, allowRead, allowWrite, input, key, retries, maxFailures, timeout, reuse, policy, allowEmpty } =
    options;
  const list = (texts: readonly string[]) => (texts.length === 0 ? undefined : [...texts]);
  const template = present({
    attach: list(attach),
    allowRead: list(allowRead),
    allowWrite: list(allowWrite),
    input,
    key,
  });
  return present({
    ...(Object.keys(template).length === 0 ? {} : { template }),
    concurrency: concurrencyOf(options),
    retries: retries === undefined ? undefined : countIn("--retries", retries),
    maxFailures: maxFailures === undefined ? undefined : countIn("--max-failures", maxFailures),
    timeoutMs: timeout === undefined ? undefined : durationIn("--timeout", timeout),
    // That nothing is said leaves it to the project.
    cache: options.cache ? undefined : false,
    machines: machinesIn(options),
    reuse,
    policy,
    allowEmpty,
  }) as Partial<AskOf<"fleets.start">>;
}

function machinesIn({ machines, needs, priority }: MapOptions): AskOf<"fleets.start">["machines"] {
  if (needs.length === 0 && priority === undefined) return machines;
  return present({
    needs: needs.length === 0 ? undefined : [...needs],
    priority: priority === undefined ? undefined : priorityIn(priority),
  });
}

/** Its lines are read there, where their errors get their places. */
async function sentManifest(path: string, { format }: MapOptions, { cwd, stdin }: Terminal) {
  const isStdin = path === "-";
  const bytes = isStdin
    ? await buffer(stdin)
    : await readFile(resolve(cwd, path)).catch((error: Error) => {
        throw new UsageError(`--manifest ${path}: ${error.message}`, { cause: error });
      });
  if (bytes.length > MAX_MANIFEST_BYTES)
    throw new UsageError(`--manifest ${path} has more than ${MAX_MANIFEST_BYTES} bytes, which no request brings`);
  if (!isUtf8(bytes)) throw new UsageError(`--manifest ${path} is not UTF-8`);
  const name = isStdin ? "standard input" : path;
  return { text: bytes.toString(), name, ...present({ format: format ?? (isStdin ? ("jsonl" as const) : undefined) }) };
}

/** `corral fleet resume` and `retry` of a fleet of a service. */
export async function continuedOverHost(
  { kind, fleet: asked }: Exclude<FleetStart, { kind: "new" }>,
  options: WatchOptions,
  service: AtService,
  terminal: Terminal,
): Promise<number> {
  const fleet = await fleetMeant(service, asked);
  const what = kind === "resume" ? "fleets.resume" : "fleets.retry";
  return await followedAt(service, options, terminal, () => service.client.call(what, { fleet }));
}

/** Shows the events of a fleet to its end. An interrupt pauses it there, too. */
async function followedAt(
  { client }: AtService,
  options: WatchOptions,
  terminal: Terminal,
  start: () => Promise<AnswerOf<"fleets.start">>,
): Promise<number> {
  const open = async ({ see, tell, drain, stop }: FleetWatch): Promise<WatchedFleet> => {
    const { fleet, after } = await start();
    const pause = (now: boolean): void => {
      const failed = (error: Error): void => tell(`corral: the fleet could not be paused: ${error.message}`);
      client.call("fleets.pause", { fleet, now }).catch(failed);
    };
    for (const [signal, now] of [[drain, false] as const, [stop, true] as const]) {
      signal.addEventListener("abort", () => pause(now), { once: true });
      if (signal.aborted) pause(now);
    }
    return {
      place: null,
      async run() {
        const settled = new Set<number>();
        let summary: FleetSummary | null = null;
        for await (const { event } of client.follow("fleets.events", { fleet }, { after })) {
          if (event.type === "interrupted")
            tell("corral: the service was killed; it continues the fleet when it is back");
          if (event.type === "settled" && event.retryInMs === null) settled.add(event.index);
          if (event.type === "ended") summary = known(event.summary);
          const seen = seenEvent(event);
          if (seen !== null) see(seen);
        }
        if (options.json) await printed(fleet, settled);
        if (summary === null)
          throw new ApiError(0, "CUT", `the events of fleet ${fleet} ended before it: \`corral fleet show ${fleet}\``);
        return summary;
      },
      junit: (id) => client.download("fleets.results", { fleet: id, form: "junit" }),
      [Symbol.asyncDispose]: async () => {},
    };
  };
  /** What an item printed, and its output, come with no event: its result is read at the end. */
  const printed = async (fleet: string, settled: ReadonlySet<number>): Promise<void> => {
    const results = jsonLinesOf<ItemResult>(await client.download("fleets.results", { fleet }));
    for await (const result of results) if (settled.has(result.index)) terminal.stdout.write(jsonLine(result));
  };
  return await watchedFleet(options, terminal, open, { lineOf: () => "" });
}

/** An event as a screen of this machine sees it; null: it shows nothing of it. */
function seenEvent(event: EventOf<"fleets.events">): FleetEvent | null {
  const now = performance.now();
  switch (event.type) {
    case "started":
      return known({ ...event, at: now });
    case "settled": {
      const { retryInMs, at, type: _, changeset, ...ended } = event;
      const unknown = { output: null, fields: {}, stderrLine: null, startedAt: null, memoryBytesPeak: null };
      const result = { ...unknown, ...ended, endedAt: at, ...(changeset === null ? {} : { changeset }) };
      return { type: "settled", result: known<ItemResult>(result), retryInMs, at: now };
    }
    case "ended":
    case "interrupted":
    case "left_out":
    case "broken":
      return null;
    default:
      return known(event);
  }
}
