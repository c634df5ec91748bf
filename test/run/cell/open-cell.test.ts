import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { noTrail } from "../../../src/audit/trail.ts";
import { DiskBaseline } from "../../../src/isolation/disk/disk-watch.ts";
import type { Accept, Cell } from "../../../src/isolation/port/cell.ts";
import { type Driver, EngineTrouble } from "../../../src/isolation/port/driver.ts";
import { refusedSourcesFor } from "../../../src/isolation/sources/refused-sources.ts";
import type { BrokerService } from "../../../src/run/cell/broker.ts";
import { type CellKind, openCell, servingCellKind, sessionCell, workerCell } from "../../../src/run/cell/open-cell.ts";
import type { RunEvent } from "../../../src/run/model/events.ts";
import type { Network } from "../../../src/sandbox/network/rule.ts";
import type { Violation } from "../../../src/sandbox/violation.ts";
import { Masking } from "../../../src/secrets/read-secret.ts";
import { currentOwner } from "../../../src/state/owner.ts";
import { fakeDriver } from "../../isolation/fake/driver.ts";
import { fakeEngine } from "../../isolation/fake/engine.ts";
import { mount, project, strict } from "../../sandbox/sandboxes.ts";
import { WORKER_UID } from "../project-fixture.ts";

const WORKER = { name: "w", file: "w.worker", command: ["waits"], env: {}, image: "fake" } as never;
const OWNER = { run: "cell", root: "cell", parent: null, worker: "w", attachments: [] };
const NEVER = new AbortController().signal;
const MIB = 1024 ** 2;

/** What `GET /v1/sandbox` answers: the one part of a service that these tests ask for. */
const SERVICE = { sandbox: () => ({ is: "served" }) } as unknown as BrokerService;

/** A folder for one test, and what a cell is opened with: a fake engine, and all kinds of cells. */
function opened() {
  const dir = mkdtempSync(join(tmpdir(), "cr-"));
  const [ownerDir, data, out, io, attachments] = ["o", "data", "out", "io", "att"].map((name) => {
    const path = join(dir, name);
    mkdirSync(path);
    return path;
  }) as [string, string, string, string, string];
  const gate = join(dir, "gate");
  writeFileSync(gate, "");
  if (process.getuid?.() === 0) chownSync(data, WORKER_UID, WORKER_UID);
  const engine = fakeEngine();
  const events: RunEvent[] = [];
  const maker = { owner: currentOwner(), sealKey: Buffer.alloc(32, 1) };
  const programs = { waits: () => new Promise<never>(() => {}) };
  const held = (): string[] => readdirSync("/proc/self/fd").flatMap((fd) => linkOf(fd) ?? []);
  const linkOf = (fd: string): string | null => {
    try {
      const target = readlinkSync(join("/proc/self/fd", fd));
      return target === data || target === out ? target : null;
    } catch {
      return null;
    }
  };
  const env = {
    driver: fakeDriver({ programs, maker, engine }),
    images: {
      ready: async ({ image: name }: { image: string }) => ({ state: "ready", name, environments: [] }) as const,
    },
    projectDir: dir,
    gate: async () => gate,
    ownerDir,
    refusedSources: refusedSourcesFor("/nowhere", null),
    overlays: false,
    audit: noTrail,
    emit: (event: RunEvent) => {
      if (event.type !== "measured") events.push(event);
    },
    now: () => 0,
    masking: new Masking(),
    secretInside: async () => "",
  };
  const stage = { paths: new Set<never>(), written: [] };
  const kinds = {
    worker: workerCell(stage, () => {}),
    session: sessionCell(stage, { outputDir: out }, new DiskBaseline()),
    serving: servingCellKind({ io, attachments }, data),
  };
  const sandbox = project([mount("/data", "rw", { host: data, approval: FREE })], { network: { allow: [] } }, strict);
  return {
    dir,
    data,
    engine,
    events,
    env,
    kinds,
    held,
    socket: join(ownerDir, "cell", "s"),
    left: () => ({ containers: [...engine.containers.keys()], files: readdirSync(ownerDir), held: held() }),
    open: (kind: CellKind<Cell>, more: OpenedWith<typeof env> = {}) =>
      openCell(
        {
          job: { run: "cell", root: "cell", parent: null, worker: WORKER, attachments: [] },
          sandbox: {
            ...sandbox,
            limits: { ...strict.defaultLimits, diskBytes: MIB },
            ...(more.network === undefined ? {} : { network: more.network }),
          },
          accept: more.accept ?? null,
          kind,
          owner: OWNER,
          signal: NEVER,
          ...(more.turn === undefined ? {} : { turn: more.turn }),
        },
        { ...env, ...more.env },
      ),
  };
}

interface OpenedWith<Env> {
  readonly env?: Partial<Env>;
  readonly turn?: () => Promise<readonly Violation[]>;
  readonly network?: Network;
  readonly accept?: Accept;
}

const FREE = { write: "pre_approved", delete: "pre_approved" } as const;
const NOTHING_LEFT = { containers: [], files: [], held: [] };
const KINDS = ["worker", "session", "serving"] as const;

let f: ReturnType<typeof opened>;
beforeEach(() => {
  f = opened();
});
afterEach(() => {
  rmSync(f.dir, { recursive: true });
});

/** The driver with what happens to each cell that it makes. */
function withCells(driver: Driver, change: (cell: Cell) => void): Driver {
  const changed = <Started extends { ok: boolean; cell?: Cell }>(started: Started): Started => {
    if (started.cell !== undefined) change(started.cell);
    return started;
  };
  return {
    ...driver,
    start: async (request) => changed(await driver.start(request)),
    startSession: async (request) => changed(await driver.startSession(request)),
    startServing: async (request) => changed(await driver.startServing(request)),
  };
}

/** The driver with every kind of start in this place. */
function withStarts(driver: Driver, start: () => Promise<never>): Driver {
  return { ...driver, start, startSession: start, startServing: start };
}

function removedBy(remove: (own: () => PromiseLike<void>) => Promise<void>): Driver {
  return withCells(f.env.driver, (cell) => {
    const own = cell[Symbol.asyncDispose].bind(cell);
    cell[Symbol.asyncDispose] = () => remove(own);
  });
}

async function sandboxAt(socket: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let text = "";
  const client = connect(socket, () => client.write("GET /v1/sandbox HTTP/1.0\r\n\r\n"));
  client.on("data", (chunk) => {
    text += chunk.toString();
  });
  client.on("error", reject).on("close", () => resolve(text));
  return await promise;
}

describe.each(KINDS)("a cell of the kind %s", (name) => {
  const kind = (): CellKind<Cell> => f.kinds[name];

  it("has a plan, pinned sources, and a socket that answers from its first work on, unless it serves items", async () => {
    await using cell = await f.open(kind());
    if (!cell.ok) throw new Error(JSON.stringify(cell.violations));
    expect(cell.plan.mounts.map(({ path }) => path)).toContain("/data");
    expect(cell.pins.sources.get(f.data)).toMatchObject({ kind: "directory" });
    expect(cell.plan.mounts.some(({ kind }) => kind === "socket")).toBe(name !== "serving");
    expect("CORRAL_SOCKET" in cell.plan.env).toBe(name !== "serving");
    if (name === "serving") return expect(existsSync(f.socket)).toBe(false);
    const answer = sandboxAt(f.socket);
    await expect(Promise.race([answer, pause(50, "waits")])).resolves.toBe("waits");
    cell.begin(OWNER, SERVICE);
    await expect(answer).resolves.toContain('{"is":"served"}');
  });

  it("reports as started each work that begins in it, and nothing before", async () => {
    await using cell = await f.open(kind());
    if (!cell.ok) throw new Error(JSON.stringify(cell.violations));
    expect(f.events).toEqual([]);
    cell.begin(OWNER, SERVICE);
    cell.begin({ ...OWNER, run: "other" }, SERVICE);
    const { plan } = cell;
    expect(f.events).toEqual([
      { type: "started", ...OWNER, driver: "engine", plan },
      { type: "started", ...OWNER, run: "other", driver: "engine", plan },
    ]);
  });

  it("is watched, and killed when it has written more than it may", async () => {
    await using cell = await f.open(kind());
    if (!cell.ok) throw new Error(JSON.stringify(cell.violations));
    const begun = cell.begin(OWNER, SERVICE);
    expect([await cell.isOverDisk(), cell.hasEnded()]).toEqual([false, false]);
    writeFileSync(join(f.data, "big"), Buffer.alloc(4 * MIB, 1));
    expect(await begun.exit).toMatchObject({ kind: "exited", code: 137 });
    expect([cell.overDisk.aborted, await cell.isOverDisk(), cell.hasEnded()]).toEqual([true, true, true]);
  });

  it("waits for its turn behind the gate, and what is written until then is not its own", async () => {
    const turn = Promise.withResolvers<readonly Violation[]>();
    const opening = f.open(kind(), { turn: () => turn.promise });
    while (f.engine.containers.size === 0) await pause(5);
    writeFileSync(join(f.data, "big"), Buffer.alloc(4 * MIB, 1));
    turn.resolve([]);
    await using cell = await opening;
    if (!cell.ok) throw new Error(JSON.stringify(cell.violations));
    expect(await cell.isOverDisk()).toBe(false);
  });

  it("is removed before its sources are released and its socket goes", async () => {
    const seen: unknown[] = [];
    const driver = removedBy(async (own) => {
      seen.push([existsSync(f.socket), f.held().includes(f.data)]);
      await own();
    });
    await (await f.open(kind(), { env: { driver } }))[Symbol.asyncDispose]();
    expect(seen).toEqual([[name !== "serving", true]]);
    expect(f.left()).toEqual(NOTHING_LEFT);
    expect(f.events).toEqual([]);
  });

  it("whose removal fails at the engine is reported, and the rest goes", async () => {
    const driver = removedBy(async (own) => {
      await own();
      throw new EngineTrouble("it does not answer");
    });
    await (await f.open(kind(), { env: { driver } }))[Symbol.asyncDispose]();
    expect(f.left()).toEqual(NOTHING_LEFT);
    expect(f.events).toEqual([{ type: "trouble", ...OWNER, detail: "it does not answer" }]);
  });

  it("whose removal fails by a bug rejects, and the rest goes", async () => {
    const driver = removedBy(async (own) => {
      await own();
      throw new TypeError("a bug");
    });
    const cell = await f.open(kind(), { env: { driver } });
    await expect(cell[Symbol.asyncDispose]()).rejects.toThrow("a bug");
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it.skipIf(name === "serving")("leaves nothing if its socket cannot be made", async () => {
    const ownerDir = join(f.dir, "x".repeat(120));
    await expect(f.open(kind(), { env: { ownerDir } })).rejects.toThrow("too long for a Unix socket");
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it.each([
    ["is refused", async () => null, /IMAGE_MISSING/],
    [
      "fails",
      async () => {
        throw new EngineTrouble("no answer");
      },
      /no answer/,
    ],
  ])("leaves nothing if its plan %s", async (_, imageFacts, reason) => {
    const driver = { ...f.env.driver, imageFacts };
    expect(await outcomeOf(f.open(kind(), { env: { driver } }))).toMatch(reason);
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it("leaves nothing if it is not what was planned", async () => {
    const maker = { owner: currentOwner(), sealKey: Buffer.alloc(32, 1) };
    const programs = { waits: () => 0 };
    const { engine } = f;
    const deviate = (sound: object) => ({ ...sound, interfaces: ["lo", "eth0"] }) as never;
    const driver = fakeDriver({ programs, maker, engine, deviate });
    expect(await outcomeOf(f.open(kind(), { env: { driver } }))).toMatch(/ENFORCEMENT_MISSING/);
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it("leaves nothing if it cannot be started", async () => {
    const driver = withStarts(f.env.driver, async () => {
      throw new EngineTrouble("no room");
    });
    expect(await outcomeOf(f.open(kind(), { env: { driver } }))).toMatch(/no room/);
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it("is refused, and leaves nothing, where its turn says what is wrong", async () => {
    const turn = async (): Promise<readonly Violation[]> => [{ code: "SERVICE_REFUSED", service: "db", reason: "x" }];
    expect(await outcomeOf(f.open(kind(), { turn }))).toBe("SERVICE_REFUSED");
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it("leaves nothing if it is cancelled before its turn", async () => {
    const turn = async (): Promise<never> => {
      expect(f.engine.containers.size).toBe(1);
      throw new Error("cancelled");
    };
    expect(await outcomeOf(f.open(kind(), { turn }))).toMatch(/cancelled/);
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it("leaves nothing if it cannot be watched, and reports also that it could not be removed", async () => {
    const unwatchable = { ...kind(), written: () => [join(f.dir, "is not there")] };
    const driver = removedBy(async (own) => {
      await own();
      throw new EngineTrouble("it does not answer");
    });
    expect(await outcomeOf(f.open(unwatchable, { env: { driver } }))).toMatch(/ENOENT/);
    expect(f.left()).toEqual(NOTHING_LEFT);
    expect(f.events).toEqual([{ type: "trouble", ...OWNER, detail: "it does not answer" }]);
  });
});

describe("a cell with an allow list", () => {
  const network = { allow: [{ to: "example.org:443" }] };
  const accept = (): void => {};
  const done: string[] = [];

  /** Cells that listen, and tell when that ends and when they are removed. */
  function listening(listen: Cell["listen"]): Driver {
    done.length = 0;
    return withCells(f.env.driver, (cell) => {
      const remove = cell[Symbol.asyncDispose].bind(cell);
      cell.listen = listen;
      cell[Symbol.asyncDispose] = async () => {
        done.push("removed");
        await remove();
      };
    });
  }

  const listens: Cell["listen"] = async (places) => {
    done.push(places.map(({ address, port, host }) => `${host} at ${address}:${port}`).join());
    return { ok: true, [Symbol.asyncDispose]: async () => void done.push("closed") };
  };

  it.each(["worker", "session"] as const)(
    "of the kind %s listens before its turn, and closes before it is removed",
    async (name) => {
      const driver = listening(listens);
      const turn = async (): Promise<readonly Violation[]> => {
        done.push("its turn");
        return [];
      };
      const cell = await f.open(f.kinds[name], { env: { driver }, network, accept, turn });
      if (!cell.ok) throw new Error(JSON.stringify(cell.violations));
      const hosts = cell.plan.mounts.find(({ path }) => path === "/etc/hosts");
      expect(readFileSync(hosts?.host ?? "", "utf8")).toMatch(
        /^127\.0\.0\.1\tlocalhost corral\n(.*\n)*127\.88\.1\.1\texample\.org\n$/,
      );
      await cell[Symbol.asyncDispose]();
      expect(done).toEqual(["example.org at 127.88.1.1:443", "its turn", "closed", "removed"]);
      expect(f.left()).toEqual(NOTHING_LEFT);
    },
  );

  it("leaves nothing, and listens nowhere, if it is cancelled before its turn", async () => {
    const turn = async (): Promise<never> => {
      throw new Error("cancelled");
    };
    const opening = f.open(f.kinds.worker, { env: { driver: listening(listens) }, network, accept, turn });
    expect(await outcomeOf(opening)).toMatch(/cancelled/);
    expect(done).toEqual(["example.org at 127.88.1.1:443", "closed", "removed"]);
    expect(f.left()).toEqual(NOTHING_LEFT);
  });

  it("is refused, and leaves nothing, if it cannot listen, or if nothing takes its connections", async () => {
    const driver = listening(async () => ({ ok: false, reason: "no" }));
    for (const more of [{ env: { driver }, accept }, { env: { driver: listening(listens) } }]) {
      expect(await outcomeOf(f.open(f.kinds.worker, { ...more, network }))).toBe("NETWORK_NOT_ENFORCEABLE");
      expect(f.left()).toEqual(NOTHING_LEFT);
    }
  });

  it("is refused if it serves items", async () => {
    expect(await outcomeOf(f.open(f.kinds.serving, { network, accept }))).toBe("NETWORK_NOT_ENFORCEABLE");
    expect(f.left()).toEqual(NOTHING_LEFT);
  });
});

/** The codes of a refusal, or the error; a cell that was opened all the same fails the test. */
async function outcomeOf(opening: ReturnType<typeof f.open>): Promise<string> {
  try {
    const cell = await opening;
    return cell.ok ? "opened" : cell.violations.map(({ code }) => code).join();
  } catch (error) {
    return String(error);
  }
}
