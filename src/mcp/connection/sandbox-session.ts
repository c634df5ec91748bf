import type { Approver } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { type OpenedSession, openSession } from "../../run/open-session.ts";
import type { Session } from "../../run/session/session.ts";
import { printable } from "../../text/visible.ts";
import type { QuestionRoutes } from "../questions/question-routes.ts";
import { narrowToRoots } from "../roots/narrow-to-roots.ts";

export interface SandboxSessionOptions {
  readonly worker: WorkerDefinition;
  /** A policy in place of the project's. */
  readonly policy?: string;
  readonly environment: RunEnvironment;
  readonly routes: QuestionRoutes;
  /** Receives the questions of runs in it. */
  readonly approver: Approver;
  /** Reports to the person who started the server. */
  readonly tell: (line: string) => void;
}

/** The sandbox under the current roots. */
export type UnderRoots =
  | {
      readonly ok: true;
      readonly session: Session;
      /** True if no directory of the worker is in the client's roots. */
      readonly isEmptied: boolean;
    }
  | Extract<OpenedSession, { ok: false }>;

interface Current {
  readonly hosts: readonly string[] | null;
  readonly opened: Extract<OpenedSession, { ok: true }>;
  readonly isEmptied: boolean;
  readonly forget: () => void;
}

/**
 * One client's session of the worker, with its own cell: opened by the first request, and opened again if the client's
 * roots have changed. What each session sees is derived from the worker's own sandbox, never from the previous session.
 */
export class SandboxSession implements AsyncDisposable {
  readonly #options: SandboxSessionOptions;
  #current: Current | null = null;
  #isOver = false;
  /** Opening and closing take turns. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: SandboxSessionOptions) {
    this.#options = options;
  }

  /** `hosts`: the real directories of the client's roots; null: it has none, and gets the worker's whole sandbox. */
  async under(hosts: readonly string[] | null): Promise<UnderRoots> {
    return await this.#inTurn(async () => {
      if (this.#isOver) throw new Error("the client's session is over");
      if (this.#current !== null && isSame(this.#current.hosts, hosts)) return told(this.#current);
      await this.#close();
      return await this.#open(hosts);
    });
  }

  /** Ends a session under other roots than these; the next request opens a new one. */
  async leave(hosts: readonly string[]): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#current !== null && !isSame(this.#current.hosts, hosts)) await this.#close();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#inTurn(async () => {
      this.#isOver = true;
      await this.#close();
    });
  }

  async #open(hosts: readonly string[] | null): Promise<UnderRoots> {
    const { worker, policy, environment, routes, approver, tell } = this.#options;
    let isEmptied = false;
    const opened = await openSession(
      {
        worker,
        signal: NEVER,
        ...(policy === undefined ? {} : { policy }),
        narrow(sandbox) {
          // A root that is the whole machine excludes nothing.
          if (hosts === null || hosts.includes("/")) return null;
          const narrow = narrowToRoots(sandbox, hosts);
          isEmptied = sandbox.mounts.length > 0 && narrow.allowRead?.length === 0;
          return narrow;
        },
      },
      environment,
    );
    if (!opened.ok) return opened;
    if (isEmptied)
      tell(
        "None of the worker's directories is in the client's roots, so it sees no files. --no-roots ignores the roots.",
      );
    this.#current = { hosts, opened, isEmptied, forget: routes.add(opened.run, approver) };
    return told(this.#current);
  }

  /** Stops all work in it, and applies the changes as far as the project's rules allow. */
  async #close(): Promise<void> {
    const current = this.#current;
    if (current === null) return;
    this.#current = null;
    const { opened, forget } = current;
    try {
      const failure = (await opened.finish())?.failure ?? null;
      if (failure !== null) this.#options.tell(printable(failure.error.message));
    } finally {
      forget();
      await opened[Symbol.asyncDispose]();
    }
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(act);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}

/** A session ends in order, even if its server is stopped: a cancelled session would apply nothing. */
const NEVER = new AbortController().signal;

function told({ opened, isEmptied }: Current): UnderRoots {
  return { ok: true, session: opened.session, isEmptied };
}

function isSame(a: readonly string[] | null, b: readonly string[] | null): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
