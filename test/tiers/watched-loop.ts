import { type Profiler, console as profiles, Session } from "node:inspector";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";
import { isAgain } from "./again.ts";

/*
 * Set-up of the tests in test/attacks/: a test fails if Corral held up the one thread while it ran. The time is that of the thread's
 * own processor, so a busy machine does not count; a profile says which part of it was in `src/`, so the test's own work
 * does not count either. A call that sleeps in the kernel uses no processor: for that, much wall time is the sign.
 */

const MAX_CPU_MS = 250;
/** Far more than a busy machine keeps a process waiting. */
const MAX_WALL_MS = 15_000;
const TICK_MS = 20;
const SAMPLE_US = 10_000;

interface Tick {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** What Corral did in one turn of the loop, by the file that did most of it. */
interface HoldUp {
  readonly ms: number;
  readonly where: string;
}

const SESSION = Symbol.for("corral.test.profiles");

/**
 * One for all files that share this process. To start a profile, V8 goes through all code that is loaded, which takes a second where that is much:
 * a tenth of the time of all tests. So one profile of this session goes on until the process ends, and further ones begin at once beside it.
 */
function profiling(): Session {
  const shared = process as { [SESSION]?: Session };
  if (shared[SESSION] !== undefined) return shared[SESSION];
  const session = new Session();
  session.connect();
  session.post("Profiler.enable");
  session.post("Profiler.setSamplingInterval", { interval: SAMPLE_US });
  session.post("Profiler.start");
  shared[SESSION] = session;
  return session;
}

let started = 0;

/** Looks at each turn of the loop until it is disposed. */
export class LoopWatch implements Disposable {
  readonly #session = profiling();
  #name = "";
  readonly #timer: NodeJS.Timeout;
  #long: { readonly from: Tick; readonly to: Tick }[] = [];
  #last: Tick = now();

  constructor() {
    this.#begin();
    this.#timer = setInterval(() => this.#look(), TICK_MS);
    this.#timer.unref();
    this.#last = now();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    profiles.profileEnd(this.#name);
  }

  /** What happened until now is left out of the next answer. To read a profile takes long, so it goes on. */
  forget(): void {
    this.#look();
    this.#long = [];
  }

  /** The turns since the last time in which Corral took too long. */
  taken(): readonly HoldUp[] {
    this.#look();
    const long = this.#long;
    this.#long = [];
    if (long.length === 0) return [];
    const profile = this.#profile();
    this.#begin();
    this.#last = now();
    return long.flatMap(({ from, to }) => {
      const [cpuMs, wallMs] = [to.cpuMs - from.cpuMs, to.wallMs - from.wallMs];
      const { share, where } = shareOfCorral(profile, from.wallMs, to.wallMs);
      if (cpuMs * share > MAX_CPU_MS) return [{ ms: Math.round(cpuMs * share), where }];
      return wallMs * share > MAX_WALL_MS ? [{ ms: Math.round(wallMs * share), where }] : [];
    });
  }

  #look(): void {
    const to = now();
    const from = this.#last;
    this.#last = to;
    if (to.cpuMs - from.cpuMs > MAX_CPU_MS || to.wallMs - from.wallMs > MAX_WALL_MS) this.#long.push({ from, to });
  }

  #begin(): void {
    started += 1;
    this.#name = `watch ${started}`;
    profiles.profile(this.#name);
  }

  #profile(): Profiler.Profile | null {
    let taken: Profiler.Profile | null = null;
    const take = ({ params }: { params: Profiler.ConsoleProfileFinishedEventDataType }): void => {
      if (params.title === this.#name) taken = params.profile;
    };
    // A session of the same thread is told at once.
    this.#session.on("Profiler.consoleProfileFinished", take);
    profiles.profileEnd(this.#name);
    this.#session.off("Profiler.consoleProfileFinished", take);
    return taken;
  }
}

function now(): Tick {
  const { user, system } = process.threadCpuUsage();
  // The profiler's clock is the monotonic one.
  return { wallMs: Number(process.hrtime.bigint()) / 1e6, cpuMs: (user + system) / 1000 };
}

/** The part of the samples between two times whose stack has a function of `src/`. */
function shareOfCorral(profile: Profiler.Profile | null, fromMs: number, toMs: number) {
  const nodes = new Map(profile?.nodes.map((node) => [node.id, node]));
  const parents = new Map(profile?.nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])));
  const places = new Map<string, number>();
  let [all, own] = [0, 0];
  let at = profile?.startTime ?? 0;
  for (const [index, sample] of (profile?.samples ?? []).entries()) {
    at += profile?.timeDeltas?.[index] ?? 0;
    if (at / 1000 < fromMs || at / 1000 > toMs) continue;
    all += 1;
    for (let id: number | undefined = sample; id !== undefined; id = parents.get(id)) {
      const frame = nodes.get(id)?.callFrame;
      const place = /\/src\/(.*)$/.exec(frame?.url.includes("/node_modules/") ? "" : (frame?.url ?? ""))?.[1];
      if (place === undefined) continue;
      own += 1;
      const name = `${place}: ${frame?.functionName}`;
      places.set(name, (places.get(name) ?? 0) + 1);
      break;
    }
  }
  const [where] = [...places].toSorted((a, b) => b[1] - a[1])[0] ?? ["unknown"];
  return { share: all === 0 ? 0 : own / all, where };
}

const isAttack = expect.getState().testPath?.startsWith(join(import.meta.dirname, "../attacks/")) ?? false;

// The other driver has no part in what the host computes.
if (isAttack && !isAgain()) {
  // To start and to read a profile takes long, so there is one for all tests of a file. One for all files of a process missed hold-ups of later ones.
  let watch: LoopWatch | null = null;
  beforeAll(() => {
    watch = new LoopWatch();
  });
  afterAll(() => watch?.[Symbol.dispose]());
  beforeEach(() => watch?.forget());
  afterEach(() => {
    const heldUp = watch?.taken() ?? [];
    expect(heldUp, `Corral held up its thread for more than ${MAX_CPU_MS} ms`).toEqual([]);
  });
}
