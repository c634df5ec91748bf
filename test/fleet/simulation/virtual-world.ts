import { AsyncLocalStorage } from "node:async_hooks";

/** A process of a simulation: what it begins belongs to it, however many promises later. */
export interface VirtualProcess {
  readonly name: string;
  /** `stopped`: as by SIGSTOP. None of its timers is due, and no answer reaches it, until it continues. */
  state: "running" | "stopped" | "dead";
  /** It does not reach the database. */
  isCut: boolean;
  /** The share of answers that are lost after their statements were committed. */
  lostAnswers: number;
}

interface Timer {
  at: number;
  readonly order: number;
  readonly process: VirtualProcess;
  readonly due: () => void;
  /** Null: once. */
  readonly everyMs: number | null;
}

type Real = Pick<typeof globalThis, "setTimeout" | "setInterval" | "clearTimeout" | "clearInterval">;

const EPOCH_MS = Date.UTC(2026, 0, 1);
const DAY_MS = 86_400_000;
let runs = 0;

/**
 * Processes under a clock that only {@link advance} moves. The timers and clocks of Node belong to it for code that one of its processes
 * runs, so the real code runs as it is. Whatever is due happens in order, and everything that follows from it before the next.
 */
export class VirtualWorld implements Disposable {
  readonly #context = new AsyncLocalStorage<VirtualProcess>();
  readonly #processes = new Map<string, VirtualProcess>();
  readonly #restore: () => void;
  /** Later than all worlds before: they may share a database. */
  readonly #epochMs: number;
  #timers: Timer[] = [];
  #order = 0;
  #now = 0;
  /** Statements that the database works on. */
  busy = 0;

  constructor() {
    runs += 1;
    this.#epochMs = EPOCH_MS + runs * DAY_MS;
    this.#restore = this.#install();
  }

  readonly now = (): number => this.#now;

  /** Milliseconds since 1970. */
  get time(): number {
    return this.#epochMs + this.#now;
  }

  find(name: string): VirtualProcess | undefined {
    return this.#processes.get(name);
  }

  /** The process that runs now. */
  get current(): VirtualProcess | undefined {
    return this.#context.getStore();
  }

  /** `main` must not reject. */
  start(name: string, main: (process: VirtualProcess) => Promise<void>): VirtualProcess {
    const process: VirtualProcess = { name, state: "running", isCut: false, lostAnswers: 0 };
    this.#processes.set(name, process);
    this.#context.run(process, () => void main(process));
    return process;
  }

  kill(process: VirtualProcess): void {
    process.state = "dead";
    this.#timers = this.#timers.filter((timer) => timer.process !== process);
  }

  /** As the process: for signals that it gets. */
  as(process: VirtualProcess, act: () => void): void {
    if (process.state !== "dead") this.#context.run(process, act);
  }

  /** Of the process that asks. */
  readonly pause = (ms: number): Promise<void> => new Promise((resolve) => void this.#timer(resolve, ms, null));

  async advance(ms: number, isOver: () => boolean = () => false): Promise<void> {
    const until = this.#now + ms;
    await this.#settled();
    while (!isOver()) {
      let next: Timer | null = null;
      for (const timer of this.#timers) {
        if (timer.process.state === "stopped" || timer.at > until) continue;
        if (next === null || timer.at < next.at || (timer.at === next.at && timer.order < next.order)) next = timer;
      }
      if (next === null) break;
      this.#now = Math.max(this.#now, next.at);
      if (next.everyMs === null) this.#timers.splice(this.#timers.indexOf(next), 1);
      else next.at = this.#now + Math.max(1, next.everyMs);
      this.#context.run(next.process, next.due);
      await this.#settled();
    }
    if (!isOver()) this.#now = until;
  }

  [Symbol.dispose](): void {
    for (const process of this.#processes.values()) this.kill(process);
    this.#restore();
  }

  #timer(due: () => void, ms: number | undefined, everyMs: number | null): Timer {
    const process = this.#context.getStore();
    if (process === undefined) throw new Error("no process of this world waits");
    this.#order += 1;
    const timer = { at: this.#now + Math.max(0, ms ?? 0), order: this.#order, process, due, everyMs };
    if (process.state !== "dead") this.#timers.push(timer);
    return timer;
  }

  /** Everything that waits neither for a timer nor for the database has happened. */
  async #settled(): Promise<void> {
    for (let quiet = 0; quiet < 3; quiet = this.busy === 0 ? quiet + 1 : 0)
      await new Promise((resolve) => setImmediate(resolve));
  }

  /** Code of no process keeps the real clocks. */
  #install(): () => void {
    const real: Real = { setTimeout, setInterval, clearTimeout, clearInterval };
    const [dateNow, monotonic] = [Date.now, performance.now];
    const own = new WeakMap<object, Timer>();
    const handleOf = (timer: Timer): NodeJS.Timeout => {
      const handle = { ref: () => handle, unref: () => handle, hasRef: () => true };
      own.set(handle, timer);
      return handle as unknown as NodeJS.Timeout;
    };
    const begin = (kind: "setTimeout" | "setInterval") =>
      ((due: (...given: unknown[]) => void, ms?: number, ...given: unknown[]) => {
        if (this.current === undefined) return real[kind](due, ms, ...given);
        return handleOf(this.#timer(() => due(...given), ms, kind === "setInterval" ? (ms ?? 1) : null));
      }) as unknown;
    const clear = (kind: "clearTimeout" | "clearInterval") => (handle: NodeJS.Timeout | undefined) => {
      const timer = typeof handle === "object" && handle !== null ? own.get(handle) : undefined;
      if (timer === undefined) real[kind](handle);
      else this.#timers = this.#timers.filter((one) => one !== timer);
    };
    Object.assign(globalThis, {
      ...{ setTimeout: begin("setTimeout"), setInterval: begin("setInterval") },
      ...{ clearTimeout: clear("clearTimeout"), clearInterval: clear("clearInterval") },
    });
    Date.now = () => (this.current === undefined ? dateNow() : this.time);
    performance.now = () => (this.current === undefined ? monotonic.call(performance) : this.#now);
    return () => {
      Object.assign(globalThis, real);
      Date.now = dateNow;
      performance.now = monotonic;
    };
  }
}
