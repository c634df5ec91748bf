import { randomBytes } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { GateReport } from "../../../src/isolation/gate/report.ts";
import { verifyCell } from "../../../src/isolation/gate/verify.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import {
  type CellInfo,
  type Driver,
  EngineTrouble,
  type Start,
  type StartRequest,
} from "../../../src/isolation/port/driver.ts";
import { labelsFor, type Maker, readLabels } from "../../../src/isolation/port/labels.ts";
import { isDead } from "../../../src/state/owner.ts";
import { FakeCell } from "./cell.ts";
import { type FakeContainer, type FakeEngine, fakeEngine } from "./engine.ts";
import type { FakeProgram } from "./program.ts";
import { soundReport } from "./report.ts";

export interface FakeDriverOptions {
  /** Who runs what, by the first word of a command. A command that is not here is one that the image does not hold. */
  readonly programs: Readonly<Record<string, FakeProgram>>;
  readonly maker: Maker;
  /** Absent: an engine of its own. */
  readonly engine?: FakeEngine;
  /** Makes cells that are not what was planned: what their gate reports, in place of a sound cell's report. */
  readonly deviate?: (sound: GateReport, plan: Plan) => GateReport;
}

/**
 * Cells in memory, for tests of everything above the drivers. The stages of a start, the verification, labels and
 * reaping are the real ones; what a kernel would enforce is not enforced.
 */
export function fakeDriver(options: FakeDriverOptions): Driver {
  const { maker, engine = fakeEngine() } = options;
  return {
    name: "engine",
    capabilities: async () => ({ engine: "fake", version: "0", missing: [], facts: {} }),
    async imageFacts(name) {
      if (engine.images === null) return { name, id: `fake:${name}`, env: [], volumes: [] };
      return engine.images.find((image) => image.name === name) ?? null;
    },
    start: (request) => start(options, engine, request),
    startSession: async (request) => waiting(await start(options, engine, request, RESIDENT)),
    startServing: async (request) =>
      waiting(await start(options, engine, { ...request, onOutput: () => {} }, RESIDENT)),
    startSteward: async () => {
      throw new EngineTrouble("the fake driver acts on no files");
    },
    list: async () => cellsOf(engine, maker),
    usage: async () => null,
    async reap() {
      const dead = cellsOf(engine, maker).filter((cell) => !cell.ownerAlive);
      for (const { run } of dead) engine.containers.get(nameOf(run))?.remove();
      return { cells: dead.map(({ run }) => run), volumes: [], directories: [] };
    },
    removeLeft: async () => {},
  };
}

/** What a cell runs that waits for commands or items: it ends when it is killed. */
const RESIDENT: FakeProgram = () => new Promise<never>(() => {});

/** What runs in a waiting cell is a kernel's work through and through: there are such cells, and nothing can be run in them. */
function waiting(started: Start) {
  if (!started.ok) return started;
  const nothing = async (): Promise<never> => {
    throw new EngineTrouble("the fake driver runs nothing in a cell that waits");
  };
  return {
    ok: true,
    cell: Object.assign(started.cell, { exec: nothing, signalAll: nothing, serve: nothing }),
  } as const;
}

function nameOf(run: string): string {
  return `corral-${run}`;
}

async function start(
  options: FakeDriverOptions,
  engine: FakeEngine,
  request: StartRequest,
  resident?: FakeProgram,
): Promise<Start> {
  const { plan, pins, signal } = request;
  signal.throwIfAborted();
  const container = makeContainer(options.maker, engine, plan);
  let kept = false;
  try {
    await nextTurn();
    signal.throwIfAborted();
    container.state = "running";
    const program = resident ?? options.programs[plan.command[0] ?? ""];
    const sound = soundReport(plan, pins, program === undefined ? "" : (plan.command[0] ?? ""));
    const { enforcement, violations } = verifyCell(plan, options.deviate?.(sound, plan) ?? sound, "engine");
    if (program === undefined || violations.length > 0) return { ok: false, violations };
    const cell = new FakeCell(container, request, program, enforcement);
    const takeOff = container.remove;
    container.remove = () => {
      cell.end(137);
      takeOff();
    };
    kept = true;
    return { ok: true, cell };
  } finally {
    if (!kept) container.remove();
  }
}

function makeContainer(maker: Maker, engine: FakeEngine, plan: Plan): FakeContainer {
  const name = nameOf(plan.run);
  if (engine.containers.has(name)) throw new EngineTrouble(`the name ${name} is in use`);
  const container: FakeContainer = {
    name,
    id: randomBytes(32).toString("hex"),
    labels: labelsFor(maker, "container", name, plan),
    createdAt: new Date().toISOString(),
    state: "created",
    remove: () => void engine.containers.delete(name),
  };
  engine.containers.set(name, container);
  return container;
}

function cellsOf(engine: FakeEngine, maker: Maker): CellInfo[] {
  return [...engine.containers.values()].flatMap(({ name, id, labels, createdAt, state }) => {
    const labelled = readLabels(maker.sealKey, "container", name, labels);
    return labelled === null
      ? []
      : [{ ...labelled, driver: "engine", id, state, createdAt, ownerAlive: !isDead(labelled.owner, maker.owner) }];
  });
}
