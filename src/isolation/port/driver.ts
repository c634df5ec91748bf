import { fullText } from "../../platform/errno.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { DriverName, Plan } from "../plan/plan.ts";
import type { ImageFacts } from "../plan/plan-for.ts";
import type { Pins } from "../sources/pin.ts";
import type { Cell, CellUsageNow, ServingCell, SessionCell } from "./cell.ts";
import type { Labelled } from "./labels.ts";

/** Makes cells from plans. Every driver passes one contract suite, `test/isolation/driver.contract.ts`. */
export interface Driver {
  readonly name: DriverName | "none";
  /** What this driver's engine is, and what it cannot enforce on this host. */
  capabilities(): Promise<Capabilities>;
  /** Null if there is no such image. */
  imageFacts(image: string): Promise<ImageFacts | null>;
  /**
   * Makes a cell and verifies it. The worker has not started: {@link Cell.release} starts it.
   *
   * A cell that is not as planned is removed, and the refusal says how it differs. Rejects with `EngineTrouble` if the
   * engine itself failed, and with the signal's reason if it was aborted. Nothing is left behind in any case.
   */
  start(request: StartRequest): Promise<Start>;
  /**
   * The same for a plan with a keeper: a cell in which commands run one after another. It is released already, and ends
   * by itself if its orchestrator ends.
   */
  startSession(request: StartRequest): Promise<Start<SessionCell>>;
  /** The same for a plan that serves items: it is released already, and waits for the first item. */
  startServing(request: Omit<StartRequest, "onOutput">): Promise<Start<ServingCell>>;
  /** Rejects with `EngineTrouble`. */
  startSteward(request: StewardRequest): Promise<Steward>;
  /** Every cell that this state directory's orchestrators made, in any state. */
  list(): Promise<CellInfo[]>;
  /** Measures a cell of {@link Driver.list} now. Null if it does not run any more. */
  usage(cell: Pick<CellInfo, "id" | "driver">): Promise<CellUsageNow | null>;
  /** Removes what belongs to owners that are certainly dead, and nothing else; nothing before `after` has settled. */
  reap(after?: Promise<unknown>): Promise<Reaped>;
  /**
   * Tries once more to remove cells of this process whose removal failed, before the process ends: until then they are tried again now
   * and then. Takes some seconds at most, and never rejects.
   */
  removeLeft(): Promise<void>;
}

/** The part of a driver that makes cells. */
export type CellMaker = Pick<Driver, "start" | "startSession" | "startServing">;

/**
 * Acts as root on the files of a cell that serves items, for a Corral that is not root. `begin`: its directories become root's; `lay`: an item's files come into them;
 * `take`: what is left of the item comes out; `clear`: everything is removed. Rejects with `EngineTrouble`. When it is disposed, or this process ends, the directories
 * are empty, and this process's own.
 */
export interface Steward extends AsyncDisposable {
  act(what: StewardAct): Promise<void>;
}
export type StewardAct = "begin" | "lay" | "take";

/** `dir`: absolute, with `io`, `attachments` and the `dirs` of the cell, and each again below `staged`. */
export interface StewardRequest {
  /** That of the cell. */
  readonly plan: Plan;
  readonly dir: string;
  readonly dirs: readonly string[];
}

export interface StartRequest {
  readonly plan: Plan;
  readonly pins: Pins;
  /** The values of the plan's secrets, by name. They reach the cell over its standard input, and are kept nowhere. */
  readonly secrets?: ReadonlyMap<string, string>;
  /** Called with each piece of output, from the first byte; never after {@link Cell.exit} has settled. */
  readonly onOutput: (stream: "stdout" | "stderr", chunk: Buffer) => void;
  readonly signal: AbortSignal;
}

export type Start<C extends Cell = Cell> =
  | { readonly ok: true; readonly cell: C }
  | { readonly ok: false; readonly violations: readonly Violation[] };

export interface Capabilities {
  readonly engine: string;
  readonly version: string;
  /** What a plan may request and this engine cannot enforce, as texts. Empty on a suitable engine. */
  readonly missing: readonly string[];
  /** What cells do not have here, or what is known of its runtime, as sentences. They can be used. */
  readonly weaknesses?: readonly string[];
  /** More facts for `doctor`. */
  readonly facts: Readonly<Record<string, string>>;
}

export interface CellInfo extends Labelled {
  readonly id: string;
  readonly driver: DriverName;
  readonly state: string;
  readonly createdAt: string;
  readonly ownerAlive: boolean;
}

export interface Reaped {
  readonly cells: readonly string[];
  readonly volumes: readonly string[];
  readonly directories: readonly string[];
}

const FULL = fullText("the container engine");

/** The engine failed, not the worker. The message is for people and may contain host paths. */
export class EngineTrouble extends Error {
  override readonly name: string = "EngineTrouble";
  /** `ENOSPC` if its disk is full: engines answer with the words of the system only. */
  readonly code: "ENOSPC" | undefined;

  constructor(message: string, options?: ErrorOptions) {
    const isFull = /: (no space left on device|disk quota exceeded)/i.test(message);
    super(isFull && !message.startsWith(FULL) ? `${FULL} (${message})` : message, options);
    this.code = isFull ? "ENOSPC" : undefined;
  }
}

/** No engine could be opened, so nothing was begun. `cause` says why. */
export class EngineAbsent extends EngineTrouble {
  override readonly name = "EngineAbsent";
}
