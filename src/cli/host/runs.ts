import type { StreamName } from "../../history/recording.ts";
import type { RunRecord } from "../../history/run-record.ts";
import type { CellUsageNow } from "../../isolation/port/cell.ts";
import type { ListedRuns, OutputPiece, RunFilter, StoppedRun } from "../../operations/runs.ts";
import { present } from "../../text/present.ts";
import { type ProjectOptions, projectPlaceOf } from "../terminal/arguments.ts";
import type { AtService, Terminal } from "../terminal/terminal.ts";
import { idMeant, known } from "./at-service.ts";

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
const MAX_LISTED = 500;

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
