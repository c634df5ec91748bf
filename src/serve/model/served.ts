import { basename } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { type Approver, type Question, unasked } from "../../approval/approver.ts";
import { loadProject, type Project } from "../../declarations/project.ts";
import type { ResultEntry } from "../../files/host/results-folder.ts";
import type { CiSelection } from "../../operations/ci/plan-ci.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import type { ConversionOptions } from "../../operations/convert/conversion.ts";
import type { SourceFile } from "../../operations/convert/source-files.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import type { FleetPlace } from "../../operations/fleets.ts";
import type { MachinePlace } from "../../operations/machine.ts";
import type { SettledChanges } from "../../run/changes/settled-run.ts";
import type { Emit, RunEvent } from "../../run/model/events.ts";
import { type Corral, openCorralFor } from "../../run/open/corral.ts";
import type { Session } from "../../run/session/session.ts";
import type { UploadBatch } from "../../state/service/upload-folder.ts";
import { projectMark } from "../../state/state-dir.ts";
import type { ToolResult } from "../../tools/tool.ts";
import { ServiceFault } from "../http/fault.ts";

/** The projects of a service, by name. What is in no served project does not exist for its clients. */
export class ServedProjects {
  readonly #byName: ReadonlyMap<string, ServedProject>;

  constructor(projects: readonly ServedProject[]) {
    this.#byName = new Map(projects.map((project) => [project.name, project]));
  }

  get all(): readonly ServedProject[] {
    return [...this.#byName.values()];
  }

  /** Absent: the only one. @throws ServiceFault */
  named(name: string | undefined): ServedProject {
    const [only, second] = this.all;
    if (name === undefined && only !== undefined && second === undefined) return only;
    const names = [...this.#byName.keys()].join(", ");
    if (name === undefined) throw new ServiceFault(400, "WRONG_REQUEST", `name a project, as \`project\`: ${names}`);
    const found = this.#byName.get(name);
    if (found === undefined)
      throw new ServiceFault(404, "UNKNOWN_PROJECT", `the service has no such project; there are: ${names}`);
    return found;
  }

  /** Of these, or of all. @throws ServiceFault */
  chosen(name: string | undefined): readonly ServedProject[] {
    return name === undefined ? this.all : [this.named(name)];
  }

  /** The name of the project in this folder; null: the service does not have it. */
  nameOf(dir: string): string | null {
    return this.all.find((project) => project.dir === dir)?.name ?? null;
  }
}

/** A name for each folder: its own, with a mark where two have the same. */
export function projectNames(dirs: readonly string[]): Map<string, string> {
  const plain = (dir: string): string =>
    basename(dir)
      .replaceAll(/[^\w.-]/g, "-")
      .replace(/^[-.]+/, "")
      .slice(0, 60) || "project";
  const counts = new Map<string, number>();
  for (const dir of dirs) counts.set(plain(dir), (counts.get(plain(dir)) ?? 0) + 1);
  return new Map(
    dirs.map((dir) => {
      const name = plain(dir);
      return [(counts.get(name) ?? 0) > 1 ? `${name}-${projectMark(dir).slice(0, 6)}` : name, dir];
    }),
  );
}

/** Receives each event, with the project as its files were when the run began. */
type EmitIn = (
  event: RunEvent,
  of: { readonly project: string; readonly declares: (worker: string) => boolean },
) => void;

/** `timeoutMs`: without an answer for so long it is denied. */
type OnWaiting = (id: string, question: Question, timeoutMs: number) => void;

/** A service has no terminal at which a user could answer. */
const ASKS_IN_THE_INBOX: Approver = {
  decide: async () => unasked("the project answers questions only where they come up (approval.inbox: closed)"),
};

/** The project as its files were, ready to run; several runs use it at once. */
interface Opened {
  readonly project: Project;
  readonly corral: Promise<Corral>;
  users: number;
  /** The files have changed since: it is closed with its last run. */
  isOld: boolean;
}

/** One project of the service. Its files are read anew for everything that is started. */
export class ServedProject implements AsyncDisposable {
  /** In URLs and answers, which do not have the path of the folder. */
  readonly name: string;
  /** Absolute, with no symbolic link in it. */
  readonly dir: string;
  readonly place: FleetPlace;
  readonly #machine: MachinePlace;
  readonly #onWaiting: OnWaiting;
  readonly #emit: EmitIn;
  #current: Opened | null = null;
  readonly #closing = new Set<Promise<unknown>>();

  constructor(
    at: { readonly name: string; readonly dir: string },
    {
      machine,
      emit,
      onWaiting,
    }: { readonly machine: MachinePlace; readonly emit: EmitIn; readonly onWaiting: OnWaiting },
  ) {
    this.name = at.name;
    this.dir = at.dir;
    this.place = { ...machine, projectDir: at.dir };
    this.#machine = machine;
    this.#onWaiting = onWaiting;
    this.#emit = emit;
  }

  /** @throws DeclarationError with every mistake in its files */
  async load(): Promise<Project> {
    return await loadProject(this.dir, this.#machine.engineEnv);
  }

  /**
   * Runs something with the project as its files are now.
   *
   * @throws DeclarationError, EngineUnavailableError
   */
  async use<T>(act: (corral: Corral) => Promise<T>): Promise<T> {
    const opened = this.#openedFor(await this.load());
    opened.users += 1;
    try {
      return await act(await opened.corral);
    } catch (error) {
      // The next one tries again.
      await opened.corral.catch(() => this.#retire(opened));
      throw error;
    } finally {
      opened.users -= 1;
      if (opened.isOld && opened.users === 0) this.#close(opened);
    }
  }

  /** All its runs have ended before. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#current !== null) this.#retire(this.#current);
    await Promise.allSettled(this.#closing);
  }

  #openedFor(project: Project): Opened {
    const current = this.#current;
    if (current !== null && isDeepStrictEqual(current.project, project)) return current;
    if (current !== null) this.#retire(current);
    const { stateDir, engineEnv } = this.#machine;
    const { timeoutMs } = project.approval;
    const onWaiting = (id: string, question: Question): void => this.#onWaiting(id, question, timeoutMs);
    const asking = { person: ASKS_IN_THE_INBOX, asksElsewhere: true, onWaiting };
    const of = { project: this.name, declares: (worker: string) => project.workers.has(worker) };
    const emit: Emit = (event) => this.#emit(event, of);
    const corral = openCorralFor(project, { stateDir, engineEnv, ...asking, emit });
    // The callers that use it get the error.
    corral.catch(() => {});
    this.#current = { project, corral, users: 0, isOld: false };
    return this.#current;
  }

  #retire(opened: Opened): void {
    if (this.#current === opened) this.#current = null;
    if (opened.isOld) return;
    opened.isOld = true;
    if (opened.users === 0) this.#close(opened);
  }

  #close({ corral }: Opened): void {
    const closed = corral.then((one) => one[Symbol.asyncDispose]()).catch(() => {});
    this.#closing.add(closed);
    void closed.finally(() => this.#closing.delete(closed));
  }
}

export interface RunOrder {
  readonly project: ServedProject;
  readonly worker: string;
  readonly words: readonly string[];
  readonly input: unknown;
  readonly attachments: readonly { readonly path: string; readonly name: string }[];
  readonly continues?: string;
  readonly policy: string | null;
  /** When the run has ended, or was not started. */
  readonly ended: () => Promise<void>;
}

/** The runs of the service, as the routes use them. */
export interface Runs {
  /** Refuses what cannot begin, before its files come. @throws RequestError, DeclarationError, ServiceFault */
  check(order: Pick<RunOrder, "project" | "worker" | "words">): Promise<void>;
  /** Answers with the id of the run when it has begun. @throws RequestError, DeclarationError, ServiceFault if it cannot begin */
  start(order: RunOrder): Promise<string>;
  /** When the run has ended; null if it is none of those that run. */
  ending(run: string): Promise<void> | null;
}

/** The fleets of the service, as the routes use them. */
export interface Fleets {
  /** Answers with its id when all items are read and checked. `start` is made with the project as its files are now. @throws RequestError FLEET_REFUSED, UNKNOWN_FLEET */
  start(project: ServedProject, startOf: (corral: Corral) => Promise<FleetStart>): Promise<string>;
  /** It starts no further item; with `now`, those that run end too. False: the service does not run it. */
  pause(fleet: string, now: boolean): boolean;
}

/** A session as clients see it. Its id is that of its run. */
type ShownSession = AnswerOf<"sessions.show">;

/** How long a session stays without a call or a command. What it wrote waits when it ends. Null: for ever. */
export interface IdleTimes {
  /** Then all that runs in it is stopped, until it is used again. */
  readonly pauseMs: number | null;
  /** From its last use on. */
  readonly endMs: number | null;
}

/** How a session is opened. */
export interface SessionOrder {
  readonly policy: string | null;
  /** A snapshot to go on from. */
  readonly from?: string;
  /** What it is called; no other open session is. */
  readonly name?: string;
  /** In place of what is usual. */
  readonly idle?: Partial<IdleTimes>;
}

/** The sessions of the service, as the routes use them. */
export interface Sessions {
  readonly all: readonly ShownSession[];
  /** @throws RequestError WORKER_REFUSED, UNKNOWN_WORKER; ToolRefusal UNKNOWN_SNAPSHOT */
  open(project: ServedProject, workerName: string, how: SessionOrder): Promise<ShownSession>;
  /** @throws ServiceFault UNKNOWN_SESSION */
  find(id: string): ShownSession;
  /** @throws ServiceFault UNKNOWN_SESSION */
  toolsOf(id: string): AnswerOf<"sessions.tools">["tools"];
  /** @throws ServiceFault UNKNOWN_SESSION, TOO_MANY */
  runTool(id: string, tool: string, input: unknown, signal: AbortSignal): Promise<ToolResult>;
  /** Uses it, so that it does not end as idle. @throws ServiceFault UNKNOWN_SESSION, TOO_MANY */
  within<T>(id: string, act: (session: Session) => Promise<T>): Promise<T>;
  /** Only looks: it is no use, so a page that shows a session neither resumes it nor keeps it awake. @throws ServiceFault UNKNOWN_SESSION, TOO_MANY */
  look<T>(id: string, act: (session: Session) => Promise<T>): Promise<T>;
  /** Settles when it has ended, for whichever reason. Never rejects. */
  closed(id: string): Promise<void>;
  /** Ends it, and applies the changes for which there is consent; null if there are none. `discards`: nothing is applied or kept; `asks`: false: what needs a person waits. @throws ServiceFault UNKNOWN_SESSION */
  finish(id: string, how: { readonly discards: boolean; readonly asks: boolean }): Promise<SettledChanges | null>;
}

/** The files are in the folder of the batch, which belongs to the conversion from now on. */
export interface ConversionOrder extends Omit<ConversionOptions, "policy" | "program"> {
  readonly files: readonly SourceFile[];
  readonly batch: UploadBatch;
}

/** A conversion as clients see it. */
export type ShownConversion = AnswerOf<"conversions.show">;

/** The conversions of the service, as the routes use them. */
export interface Conversions {
  /** The newest first. */
  readonly all: readonly ShownConversion[];
  /** Before files come. @throws ServiceFault TOO_MANY */
  refuseMore(): void;
  /** Answers with its id when it has begun. */
  start(order: ConversionOrder): Promise<string>;
  /** @throws ServiceFault UNKNOWN_CONVERSION */
  find(id: string): ShownConversion;
  /** When it has ended; null: it has. @throws ServiceFault UNKNOWN_CONVERSION */
  ending(id: string): Promise<void> | null;
  /** @throws ServiceFault UNKNOWN_CONVERSION, NOT_FOUND */
  file(id: string, path: string): ResultEntry;
  /** @throws ServiceFault UNKNOWN_CONVERSION */
  files(id: string): AsyncIterable<ResultEntry>;
  /** Stops it, and removes its files. @throws ServiceFault UNKNOWN_CONVERSION */
  remove(id: string): Promise<void>;
}

export interface CiOrder {
  readonly project: ServedProject;
  readonly base: string;
  readonly head: string;
  readonly selection: CiSelection;
}

/** A run of jobs as clients see it. */
export type ShownCi = AnswerOf<"ci.show">;

/** The runs of jobs of the service, as the routes use them. */
export interface CiRuns {
  /** The newest first. */
  readonly all: readonly ShownCi[];
  /** Answers with its id. What is wrong with its commits or with `ci.yaml` is the reason why it has stopped. @throws ServiceFault TOO_MANY */
  start(order: CiOrder): string;
  /** @throws ServiceFault UNKNOWN_CI */
  find(id: string): ShownCi;
  /** When it has ended; null: it has. @throws ServiceFault UNKNOWN_CI */
  ending(id: string): Promise<void> | null;
  /** @throws ServiceFault UNKNOWN_CI, NOT_FOUND */
  file(id: string, path: string): ResultEntry;
  /** Stops it, and removes its results. @throws ServiceFault UNKNOWN_CI */
  remove(id: string): Promise<void>;
}
