import type { ItemLog } from "../../fleet/model/item.ts";
import { inChunks, jsonLine, resultsJsonl } from "../../fleet/report/results-export.ts";
import type { StreamName } from "../../history/recording.ts";
import type { RunRecord } from "../../history/run-record.ts";
import type { CellUsageNow } from "../../isolation/port/cell.ts";
import type {
  CancelledFleet,
  FleetDetails,
  FleetItem,
  FleetPlace,
  ListedFleet,
  ListedMachine,
} from "../../operations/fleets.ts";
import { RequestError } from "../../operations/request-error.ts";
import type { ListedRuns, OutputPiece, RunFilter, StoppedRun } from "../../operations/runs.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printable } from "../../text/visible.ts";
import { type ProjectOptions, projectPlaceOf } from "../terminal/arguments.ts";
import type { AtService, Terminal } from "../terminal/terminal.ts";
import { idMeant, known } from "./at-service.ts";

/** A service does not say which process runs a fleet. */
type Seen<Fleet> = Omit<Fleet, "owner">;
export type SeenFleet = Seen<ListedFleet>;

/** Of the request of an item, a service says the names of files, and not where they are. */
export interface SeenItem extends Omit<FleetItem, "request"> {
  readonly request: Partial<Omit<FleetItem["request"], "attachments">> & {
    readonly attachments: readonly { readonly name: string; readonly path?: string }[];
  };
}

export type SeenMachine = Omit<ListedMachine, "fleets"> & {
  readonly fleets: readonly Omit<ListedMachine["fleets"][number], "projectDir">[];
};

type ReportForm = "jsonl" | "csv" | "html" | "junit";
type Pieces = AsyncIterable<string | Uint8Array>;

/** The fleets of a project, of this machine or of a service. Ids may be beginnings of them, or `latest`. */
export interface FleetsOffer {
  list(limit: number): Promise<{ readonly fleets: readonly SeenFleet[]; readonly more: boolean }>;
  show(asked: string): Promise<Seen<FleetDetails>>;
  item(asked: string, key: string): Promise<SeenItem>;
  logs(asked: string, filter: { readonly failed: boolean }): Promise<AsyncIterable<ItemLog>>;
  /** `status`: of jsonl and csv; null: all. */
  results(asked: string, form: ReportForm, status: string | null): Promise<Pieces>;
  machines(): Promise<readonly SeenMachine[]>;
  cancel(asked: string): Promise<CancelledFleet>;
}

export async function fleetsOffered(
  options: Pick<ProjectOptions, "project">,
  terminal: Terminal,
): Promise<FleetsOffer> {
  if (terminal.service !== undefined) return fleetsAt(terminal.service);
  const fleets = await import("../../operations/fleets.ts");
  const place = await fleetPlaceOf(options, terminal);
  return {
    async list(limit) {
      const found = await fleets.listFleets(place, limit + 1);
      return { fleets: found.slice(0, limit), more: found.length > limit };
    },
    show: (asked) => fleets.showFleet(place, asked),
    item: (asked, key) => fleets.showItem(place, asked, key),
    logs: (asked, filter) => fleets.fleetLogs(place, asked, filter),
    async results(asked, form, status) {
      const pieces = {
        jsonl: async () => resultsJsonl(await fleets.fleetResults(place, asked, { status })),
        csv: () => fleets.fleetResultsCsv(place, asked, { status }),
        html: () => fleets.fleetReport(place, asked),
        junit: () => fleets.fleetJunit(place, asked),
      };
      return inChunks(await pieces[form]());
    },
    machines: () => fleets.listMachines(place),
    cancel: (asked) => fleets.cancelFleet(place, asked),
  };
}

async function fleetPlaceOf({ project }: Pick<ProjectOptions, "project">, { env }: Terminal): Promise<FleetPlace> {
  const { loadProject } = await import("../../declarations/project.ts");
  const { dir } = await loadProject(project, env);
  return { stateDir: stateDirFrom(env), projectDir: dir, engineEnv: env };
}

/** Of one answer of a service. */
const MAX_LISTED = 500;
const MAX_MACHINES = 1000;

function fleetsAt(service: AtService): FleetsOffer {
  const { client } = service;
  const project = present({ project: service.project });
  return {
    list: async (limit) => known(await client.call("fleets.list", { ...project, limit: Math.min(limit, MAX_LISTED) })),
    show: async (asked) => known(await client.call("fleets.show", { fleet: await fleetMeant(service, asked) })),
    async item(asked, key) {
      const { request, ...item } = await client.call("fleets.item", { fleet: await fleetMeant(service, asked), key });
      const attachments = request.attachments.map((name) => ({ name }));
      return known({ ...item, request: { ...request, attachments } });
    },
    async logs(asked, { failed }) {
      const fleet = await fleetMeant(service, asked);
      return jsonLinesOf<ItemLog>(await client.download("fleets.logs", { fleet, failed }));
    },
    async results(asked, form, status) {
      const fleet = await fleetMeant(service, asked);
      const ask = { fleet, form, ...present({ status: status ?? undefined }) };
      const pieces = await client.download("fleets.results", ask);
      return form === "jsonl" ? jsonAgain(pieces) : textOf(pieces);
    },
    async machines() {
      const { machines, hasQueue } = await client.call("host.machines", { ...project, limit: MAX_MACHINES });
      if (!hasQueue) throw new RequestError("NO_QUEUE", service.url, "the service has no project with a queue");
      return known(machines);
    },
    cancel: async (asked) => known(await client.call("fleets.cancel", { fleet: await fleetMeant(service, asked) })),
  };
}

/* What a service says is text, whatever it is: control characters of it become visible. It writes none itself. */

async function* jsonAgain(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  for await (const line of jsonLinesOf<object>(pieces)) yield jsonLine(line);
}

async function* textOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  for await (const piece of pieces) yield printable(decoder.decode(piece, { stream: true }), "\n\r\t\f", "kept");
}

/** @throws RequestError UNKNOWN_FLEET, AMBIGUOUS_ID */
export async function fleetMeant({ client, project }: AtService, asked: string): Promise<string> {
  const newest = async () => (await client.call("fleets.list", { ...present({ project }), limit: MAX_LISTED })).fleets;
  const about = ({ createdAt, spec }: { readonly createdAt: string; readonly spec: { readonly worker: string } }) =>
    `${spec.worker}, ${createdAt}`;
  return await idMeant(asked, "UNKNOWN_FLEET", "fleet", newest, about);
}

/** What a service sends as a line of JSON each. */
export async function* jsonLinesOf<Line>(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Line> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of pieces) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield JSON.parse(line) as Line;
  }
  if (rest !== "") yield JSON.parse(rest) as Line;
}

/** A run as it is shown: a service says neither its folder nor its process. `project`: the folder, or the service's name of it. */
export type SeenRun = Omit<RunRecord, "owner"> & { readonly owner?: string };

interface OutputWanted {
  readonly streams: readonly StreamName[];
  readonly service?: string;
  readonly lines?: number;
  readonly follow: boolean;
  readonly signal: AbortSignal;
}

/** The history of runs, of this machine or of a service. Ids may be beginnings of them, or `latest`. */
export interface RunsOffer {
  list(filter: RunFilter): Promise<Omit<ListedRuns, "runs"> & { readonly runs: readonly SeenRun[] }>;
  show(asked: string): Promise<SeenRun>;
  /** What the container of a running one uses now; null if that is not known. */
  usage(run: string): Promise<CellUsageNow | null>;
  stop(asked: string): Promise<StoppedRun>;
  output(asked: string, wanted: OutputWanted): Promise<AsyncIterable<OutputPiece>>;
}

export async function runsOffered(options: Pick<ProjectOptions, "project">, terminal: Terminal): Promise<RunsOffer> {
  if (terminal.service !== undefined) return runsAt(terminal.service);
  const runs = await import("../../operations/runs.ts");
  const place = await projectPlaceOf(options, terminal);
  return {
    list: (filter) => runs.listRuns(place, filter),
    show: (asked) => runs.showRun(place, asked),
    async usage(run) {
      const { usageOfRun } = await import("../../operations/machine.ts");
      return await usageOfRun({ stateDir: place.stateDir, engineEnv: terminal.env }, run);
    },
    stop: (asked) => runs.stopRun(place, asked),
    output: (asked, wanted) => runs.runOutput(place, asked, wanted),
  };
}

/** Of one answer of a service. */

function runsAt(service: AtService): RunsOffer {
  const { client, project } = service;
  return {
    async list({ allProjects, limit = MAX_LISTED, ...filter }) {
      const which = { ...present({ project: allProjects ? undefined : project }), ...filter };
      return known(await client.call("runs.list", { ...which, calls: false, limit: Math.min(limit, MAX_LISTED) }));
    },
    show: async (asked) => known(await client.call("runs.show", { run: await runMeant(service, asked) })),
    usage: async () => null,
    stop: async (asked) => await client.call("runs.stop", { run: await runMeant(service, asked) }),
    async output(asked, { streams, service: beside, lines, follow, signal }) {
      const run = await runMeant(service, asked);
      const opened = streams.map(async (stream) => {
        const query = { run, stream, follow, ...present({ lines, service: beside }) };
        const pieces = await client.download("runs.output", query, { signal });
        return { stream, pieces };
      });
      return merged(await Promise.all(opened));
    },
  };
}

/** Of a run that its beginning or `latest` names. @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID */
export async function runMeant({ client, project }: AtService, asked: string): Promise<string> {
  const newest = async () =>
    (await client.call("runs.list", { ...present({ project }), calls: false, limit: MAX_LISTED })).runs;
  return await idMeant(asked, "UNKNOWN_RUN", "run", newest, ({ worker, queuedAt }) => `${worker}, ${queuedAt}`);
}

/** The pieces of several streams as they come. */
async function* merged(
  streams: readonly { readonly stream: StreamName; readonly pieces: AsyncIterable<Uint8Array> }[],
): AsyncGenerator<OutputPiece, void, undefined> {
  const next = async (at: number, from: AsyncIterator<Uint8Array>) => ({ at, from, piece: await from.next() });
  const waiting = new Map(streams.map(({ pieces }, at) => [at, next(at, pieces[Symbol.asyncIterator]())]));
  while (waiting.size > 0) {
    const { at, from, piece } = await Promise.race(waiting.values());
    waiting.delete(at);
    if (piece.done) continue;
    waiting.set(at, next(at, from));
    yield { stream: streams[at]?.stream ?? "stdout", bytes: Buffer.from(piece.value), missingBytes: 0 };
  }
}
