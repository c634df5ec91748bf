import { Duplex } from "node:stream";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { GATE_PATH } from "../../isolation/plan/plan.ts";
import type { Exec, SessionCell } from "../../isolation/port/cell.ts";
import { textBeside } from "../../platform/text-beside.ts";
import { onAbort, within } from "../../platform/within.ts";
import type { SecretSearch } from "../../secrets/read-secret.ts";
import { ToolRefusal } from "../../tools/tool.ts";

/** A port of a session's cell, at its loopback device. */
export interface SessionPort {
  readonly port: number;
  /** That the worker gives it; null: none. */
  readonly name: string | null;
  /** The worker declares it, or who opened the session named it: it can be connected. */
  readonly isAllowed: boolean;
  readonly isListening: boolean;
}

/** The cell of a session, which may be another one later. */
interface PortCell {
  /** Null: none runs. */
  running(): Promise<{ readonly contents: SessionCell; readonly search: () => SecretSearch | null } | null>;
  readonly isPaused: boolean;
}

/** Of one session at once. Each is a command of its cell. */
const MAX_CONNECTIONS = 12;
/** Ports that are named beside those that the worker declares. */
const MAX_NAMED = 32;
/** How long a program of Corral's own may take to begin in the cell. */
const BEGIN_MS = 10_000;
const MAX_TABLE_BYTES = 1024 ** 2;
const NOTHING_LISTENS = 7;

/**
 * Connects to what listens in a session's cell, in that cell's network and no other. Like a command, a program of Corral's own (the gate)
 * runs there with the rights of the worker, whether Corral runs as root or not, and passes bytes on. To enter the network from outside, as the
 * allow list does, would take 40 ms of a processor for each connection, and a container without root (docs/facts.md, fact: shared-loopback).
 */
export class SessionPorts {
  readonly #cell: PortCell;
  readonly #declared: ReadonlyMap<number, string | null>;
  readonly #named = new Set<number>();
  readonly #open = new Set<PortConnection>();
  #opening = 0;

  constructor({ ports = [] }: Pick<WorkerDefinition, "ports">, cell: PortCell) {
    this.#cell = cell;
    this.#declared = new Map(ports.map(({ port, name }) => [port, name]));
  }

  /** Who owns the session names ports that its worker does not declare. @throws ToolRefusal */
  allow(ports: readonly number[]): void {
    for (const port of ports) this.#named.add(port);
    if (this.#named.size <= MAX_NAMED) return;
    throw new ToolRefusal("TOO_MANY_PORTS", `A session has at most ${MAX_NAMED} ports beside those of its worker.`);
  }

  /** Those that can be connected, and others that a program listens on. */
  async list(signal: AbortSignal): Promise<SessionPort[]> {
    const listening = await this.#listening(signal);
    const known = new Set([...this.#declared.keys(), ...this.#named, ...listening]);
    return [...known]
      .toSorted((a, b) => a - b)
      .map((port) => ({
        port,
        name: this.#declared.get(port) ?? null,
        isAllowed: this.#isAllowed(port),
        isListening: listening.has(port),
      }));
  }

  /** @throws ToolRefusal PORT_NOT_DECLARED */
  check(port: number): void {
    if (this.#isAllowed(port)) return;
    const allowed = [...this.#declared.keys(), ...this.#named].join(", ") || "none";
    throw new ToolRefusal(
      "PORT_NOT_DECLARED",
      `The worker does not declare port ${port}; it has: ${allowed}. Add it to \`ports\` of the worker, or start the session with --port ${port}.`,
    );
  }

  /**
   * A connection to a port: what is written to it arrives there, and what is read from it comes from there. It ends with what listens, with the
   * cell, or when it is destroyed. Rejects with `ToolRefusal` or `EngineTrouble`.
   */
  async connect(port: number, signal: AbortSignal): Promise<Duplex> {
    this.check(port);
    if (this.#cell.isPaused) throw new ToolRefusal("SESSION_PAUSED", "The session is paused. Resume it first.");
    if (this.#open.size + this.#opening >= MAX_CONNECTIONS)
      throw new ToolRefusal(
        "TOO_MANY_CONNECTIONS",
        `A session has at most ${MAX_CONNECTIONS} connections to its ports.`,
      );
    this.#opening += 1;
    try {
      const cell = await this.#cell.running();
      const connection = cell === null ? null : await PortConnection.open(cell.contents, port, signal, cell.search());
      if (connection === null)
        throw new ToolRefusal(
          "NOTHING_LISTENS",
          `Nothing listens on port ${port} of the session, at 127.0.0.1 or all addresses.`,
        );
      this.#open.add(connection);
      connection.once("close", () => this.#open.delete(connection));
      return connection;
    } finally {
      this.#opening -= 1;
    }
  }

  /** Ends all connections. */
  end(): void {
    for (const connection of this.#open) connection.destroy();
  }

  #isAllowed(port: number): boolean {
    return this.#declared.has(port) || this.#named.has(port);
  }

  async #listening(signal: AbortSignal): Promise<ReadonlySet<number>> {
    const opened = await this.#cell.running();
    if (opened === null) return new Set();
    let table = "";
    const exec = await opened.contents.exec({
      argv: [GATE_PATH, "cat", "/proc/net/tcp", "/proc/net/tcp6"],
      cwd: "/",
      env: {},
      stdin: new Uint8Array(),
      onOutput(stream, chunk) {
        if (stream === "stdout" && table.length < MAX_TABLE_BYTES) table += chunk.toString("latin1");
      },
    });
    using _ = onAbort(signal, () => void exec.signal("SIGKILL").catch(() => false));
    await within(exec.exit, BEGIN_MS);
    return listeningIn(table);
  }
}

/** At any address, or at 127.0.0.1 or ::1: what Corral itself listens on in a cell has other addresses. */
const LISTENING =
  /^ *\d+: (?:0100007F|0{8}|0{32}|0{24}01000000|0{16}FFFF00000100007F):([0-9A-F]{4}) [0-9A-F]+:0000 0A /gm;

/** The ports of the kernel's tables of sockets, `/proc/net/tcp` and `tcp6`. */
export function listeningIn(tables: string): ReadonlySet<number> {
  return new Set([...tables.matchAll(LISTENING)].map(([, port = ""]) => Number.parseInt(port, 16)));
}

const CONNECT_SCRIPT = textBeside(import.meta.url, "connect-port.sh");

/** The bytes of one connection. */
export class PortConnection extends Duplex {
  readonly #cell: SessionCell;
  /** Of its program, in the cell; null: it has not begun. */
  #pid: string | null = null;
  #exec: Exec | null = null;
  #room = Promise.withResolvers<void>();
  #isOver = false;

  private constructor(cell: SessionCell) {
    super({ allowHalfOpen: false });
    this.#cell = cell;
  }

  /** Null: nothing listens there. What contains a secret of `search` does not come through: the connection ends there. */
  static async open(
    cell: SessionCell,
    port: number,
    signal: AbortSignal,
    search: SecretSearch | null = null,
  ): Promise<PortConnection | null> {
    const connection = new PortConnection(cell);
    const begun = Promise.withResolvers<true>();
    const hex = port.toString(16).toUpperCase().padStart(4, "0");
    const exec = await cell.exec({
      argv: [GATE_PATH, "sh", "-c", CONNECT_SCRIPT, GATE_PATH, String(port), hex],
      cwd: "/",
      env: {},
      onOutput(stream, chunk) {
        if (stream === "stdout" && (search?.add(chunk) ?? null) === null) return connection.#came(chunk);
        if (stream === "stdout") return void connection.destroy();
        connection.#pid ??= /^\d{1,10}\n/.exec(chunk.toString("latin1"))?.[0].trim() ?? null;
        begun.resolve(true);
        return undefined;
      },
    });
    connection.#exec = exec;
    const ended = exec.exit.then((exit) => {
      connection.#isOver = true;
      connection.push(null);
      return exit.kind === "exited" ? exit.code : null;
    });
    const left = Promise.withResolvers<null>();
    using _ = onAbort(signal, () => left.resolve(null));
    const first = await Promise.race([within(Promise.race([begun.promise, ended]), BEGIN_MS), left.promise]);
    if (first === true) return connection;
    // Its error is told by what is returned or thrown here.
    connection.on("error", () => {}).destroy();
    signal.throwIfAborted();
    if (first === NOTHING_LISTENS) return null;
    throw new ToolRefusal(
      "NOT_CONNECTED",
      `The connection to port ${port} could not be made in the session's container; try again.`,
    );
  }

  /** A promise: no more is read of the connection until its reader has room. */
  #came(chunk: Buffer): Promise<void> | undefined {
    if (this.destroyed || this.push(chunk)) return undefined;
    return this.#room.promise;
  }

  override _read(): void {
    this.#room.resolve();
    this.#room = Promise.withResolvers();
  }

  override _write(chunk: Uint8Array, _: string, done: (error?: Error | null) => void): void {
    const waiting = this.#isOver ? undefined : this.#exec?.write(chunk);
    if (waiting === undefined) done();
    else void waiting.then(() => done());
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#exec?.closeInput();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#room.resolve();
    if (!this.#isOver) void this.#end().catch(() => false);
    done(error);
  }

  /** Its program alone: to end a command is to end all that began since in the cell and hides, such as a server that went into the background. */
  async #end(): Promise<void> {
    if (this.#pid === null) await this.#exec?.signal("SIGKILL");
    else {
      const argv = [GATE_PATH, "kill", "-KILL", this.#pid];
      const killing = await this.#cell.exec({ argv, cwd: "/", env: {}, stdin: new Uint8Array(), onOutput: () => {} });
      await killing.exit;
    }
  }
}
