import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, open, rm, writeFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { join } from "node:path";
import { SYSTEM_ENV } from "../../../files/host/system-program.ts";
import { formatOwner, type Owner } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { ImageRoot } from "../model/images.ts";
import { launcherName, type RuncPaths } from "../model/layout.ts";
import { LAUNCHER_SCRIPT } from "./launcher-script.ts";
import { asByTheEngine } from "./passed-on.ts";

export interface LauncherRequest {
  readonly owner: Owner;
  readonly paths: RuncPaths;
  readonly runc: string;
  /** The static binary that starts every cell. */
  readonly gate: string;
  readonly image: ImageRoot;
  /** How many cells it can start. */
  readonly places: number;
}

/** Where one cell is started: once. */
export interface Place {
  /** The streams of runc. Its input first takes the request of {@link Place.start}. */
  readonly stdin: Socket;
  readonly stdout: Socket;
  readonly stderr: Socket;
  /** Has runc started in the directory of the cell. `config`: of the bundle, in which the root file system is `root`. */
  start(run: string, id: string, root: "read-only" | "writable", config: string): Promise<StartedRunc>;
  /** It is not used any more. */
  letGo(): void;
}

export interface StartedRunc {
  /**
   * The exit code of runc, with what it and the shell that waits for it have logged; null if nothing is known of it. Rejects if
   * the log cannot be read.
   */
  readonly end: Promise<{ readonly code: number; readonly log: string } | null>;
}

/** runc is a program of Go, which by default prepares for all processors of the machine. It does one thing after another. */
const LAUNCHER_ENV = { ...SYSTEM_ENV, GOMAXPROCS: "1" };
/** How long the code of a runc may be on its way when its streams have closed. */
const CODE_MS = 2000;
/** For errors of mounts, and for one line of each place. */
const MAX_SAID_CHARS = 4096;

/**
 * A process that starts runc for a few cells of one image: the kernel copies the page tables of this process once for all of
 * them, and their image is mounted by the time it is needed. It ends after its cells, or when this process ends.
 */
export class Launcher {
  readonly places: readonly Place[];
  readonly #child: ChildProcess;
  readonly #dir: string;
  readonly #ready = Promise.withResolvers<void>();
  readonly #over = Promise.withResolvers<void>();
  readonly #codes: PromiseWithResolvers<number | null>[];
  #said = "";
  #failure = "";
  #inUse = 0;

  static async start(request: LauncherRequest): Promise<Launcher> {
    const { owner, paths, places } = request;
    const dir = join(paths.launchers, launcherName(formatOwner(owner), randomBytes(6).toString("hex")));
    await mkdir(dir, { recursive: true, mode: 0o700 });
    // They stay: `runc exec` wants to find the root file system by its path, wherever that is mounted.
    const roots = Array.from({ length: places }, (_, at) => join(paths.memory, String(at), "root"));
    await Promise.all(roots.map((root) => mkdir(root, { recursive: true, mode: 0o700 })));
    return new Launcher(dir, request);
  }

  private constructor(dir: string, { paths, runc, gate, image, places }: LauncherRequest) {
    this.#dir = dir;
    const words = [image.layers.join(":"), paths.cells, paths.state, runc, paths.memory, String(places)];
    const pipes = Array.from({ length: 3 * places }, () => "pipe" as const);
    this.#codes = Array.from({ length: places }, () => Promise.withResolvers<number | null>());
    const script = [gate, "unshare", "--mount", gate, "sh", "-c", LAUNCHER_SCRIPT, gate, ...words];
    const [program = "", ...rest] = [...asByTheEngine(gate), ...script];
    const child = spawn(program, rest, {
      cwd: dir,
      stdio: ["ignore", "pipe", "pipe", ...pipes],
      env: LAUNCHER_ENV,
      // In a session of its own no key of a terminal signals it, nor runc, which would pass it on to the worker.
      detached: true,
    });
    this.#child = child;
    this.#ready.promise.catch(() => {});
    child.stdout?.on("data", (chunk: Buffer) => this.#read(chunk));
    child.stderr?.on("data", (chunk: Buffer) => {
      this.#failure = `${this.#failure}${chunk}`.slice(0, MAX_SAID_CHARS);
    });
    child.once("error", (error) => this.#end(error.message));
    child.once("exit", () => this.#over.resolve());
    // The shells of all places have ended too, and have said what they had to say.
    child.stdout?.once("close", () => this.#end(this.#failure.trim() || "no reason given"));
    this.places = this.#codes.map(({ promise }, at) => this.#place(at, paths.memory, promise));
  }

  /** No place can be used any more that was not before. */
  get over(): Promise<void> {
    return this.#over.promise;
  }

  #place(at: number, memory: string, ended: Promise<number | null>): Place {
    const [stdin, stdout, stderr] = [3, 4, 5].map((first) => this.#child.stdio[first + 3 * at] as Socket);
    if (stdin === undefined || stdout === undefined || stderr === undefined) throw new Error("a launcher has no pipes");
    for (const stream of [stdin, stdout, stderr]) stream.on("error", () => {}).unref();
    const closed = Promise.all([stdout, stderr].map((stream) => new Promise((done) => stream.once("close", done))));
    // The shell holds them too: without them it has said what it had to say, or was killed.
    void closed.then(() => setTimeout(() => this.#codes[at]?.resolve(null), CODE_MS).unref());
    // By its own process the mounts are seen; the id is not that of another while it was not waited for.
    const seen = `/proc/${this.#child.pid}/root${join(memory, String(at))}`;
    return {
      stdin,
      stdout,
      stderr,
      start: async (run, id, root, config) => {
        this.#use(1);
        for (const stream of [stdin, stdout, stderr]) stream.ref();
        void ended.then(() => this.#use(-1));
        await this.#ready.promise;
        await writeFile(join(seen, "config.json"), config, { mode: 0o600, flag: "wx" });
        // Held open, since the launcher may end with its last cell.
        const log = await open(join(seen, "log"), "a+", 0o600);
        stdin.write(`${run} ${id} ${root}\n`);
        const end = ended.then(async (code) => {
          await using _ = log;
          return code === null ? null : { code, log: await log.readFile("utf8") };
        });
        return { end };
      },
      letGo: () => void stdin.destroy(),
    };
  }

  /** This process does not wait for the end of a launcher that has nothing to do. */
  #use(more: 1 | -1): void {
    this.#inUse += more;
    for (const each of [this.#child, this.#child.stdout as Socket | null, this.#child.stderr as Socket | null])
      if (this.#inUse > 0) each?.ref();
      else each?.unref();
  }

  #read(chunk: Buffer): void {
    this.#said += chunk.toString("latin1");
    for (let end = this.#said.indexOf("\n"); end >= 0; end = this.#said.indexOf("\n")) {
      const [place, code] = this.#said.slice(0, end).split(" ");
      this.#said = this.#said.slice(end + 1);
      if (place === "ready") this.#ready.resolve();
      else this.#codes[Number(place)]?.resolve(Number(code));
    }
    if (this.#said.length > MAX_SAID_CHARS) this.#said = "";
  }

  #end(reason: string): void {
    this.#ready.reject(new EngineTrouble(`the image could not be mounted for a cell: ${reason}`));
    this.#over.resolve();
    for (const { resolve } of this.#codes) resolve(null);
    void rm(this.#dir, { recursive: true, force: true }).catch(() => {});
  }
}
