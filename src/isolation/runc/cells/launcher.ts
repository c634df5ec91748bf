import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs, { readFileSync, writeFileSync } from "node:fs";
import { mkdir, open, rm } from "node:fs/promises";
import { Socket } from "node:net";
import { getPriority } from "node:os";
import { join } from "node:path";
import { SYSTEM_ENV } from "../../../files/host/system-program.ts";
import { hasCode } from "../../../platform/errno.ts";
import { textBeside } from "../../../platform/text-beside.ts";
import { onAbort } from "../../../platform/within.ts";
import { formatOwner, type Owner } from "../../../state/owner.ts";
import type { MountPoint } from "../../plan/mounts.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { type ImageRoot, launcherName, type RuncPaths, type RuncPrograms, runtimeWords } from "../model/layout.ts";
import { makeMountPoints } from "./oci-config.ts";

/**
 * Mounts an image several times in a mount namespace of its own, and then waits in each place to start runc once: so starting a
 * cell takes few programs but runc, and the mounts end with the last process of the cells. `$0` is the gate's binary, whose
 * programs depend on nothing of this machine. Corral makes the mount points of a cell in its root
 * file system, in memory, before the shell reads the request of its place; then that is made read-only. A device of the image is never opened there.
 *
 * Each place has three named pipes, open on descriptors from 3 on before anything reads from them, which become the streams of its runtime: crun gives them to the
 * worker, who could not open a socket by its name `/dev/stdout`. No name of them is left by then, so none leads to a place of this machine. A place ends
 * without a cell if its input ends, and holds no descriptor of another place. What is in the background ignores SIGINT, and so would a worker
 * (docs/facts.md, fact: ignored-interrupts).
 *
 * The shell waits for the runtime, since the kernel reports an exit to the parent: `PLACE CODE`, and in the log of the place the name of the
 * signal, if one ended the runtime itself.
 */
const LAUNCHER_SCRIPT = textBeside(import.meta.url, "launcher.sh");

export interface LauncherRequest {
  readonly owner: Owner;
  readonly paths: RuncPaths;
  readonly programs: Pick<RuncPrograms, "runtime" | "env">;
  /** The static binary that starts every cell. */
  readonly gate: string;
  readonly image: ImageRoot;
  /** How many cells it can start. */
  readonly places: number;
}

/** Where one cell is started: once. */
export interface LaunchPlace {
  /** Has the runtime started in the directory of the cell. Rejects with `EngineTrouble`, with `ImageInTheWay`, and with the signal's reason. */
  start(request: PlaceRequest): Promise<StartedRuntime>;
  /** It is not used any more. */
  letGo(): void;
}

export interface PlaceRequest {
  readonly run: string;
  readonly id: string;
  /** Of the bundle, in which the root file system is `root`. */
  readonly config: string;
  readonly mountPoints: readonly MountPoint[];
  readonly signal: AbortSignal;
}

/** The other ends of a place's pipes. */
interface PlaceStreams {
  readonly stdin: Socket;
  readonly stdout: Socket;
  readonly stderr: Socket;
}

export interface StartedRuntime extends PlaceStreams {
  /**
   * The exit code of the runtime, with what it and the shell that waits for it have logged; null if nothing is known of it. Rejects if
   * the log cannot be read.
   */
  readonly end: Promise<{ readonly code: number; readonly log: string } | null>;
}

/** runc is a program of Go, which by default prepares for all processors of the machine. It does one thing after another. */
const LAUNCHER_ENV = { ...SYSTEM_ENV, GOMAXPROCS: "1" };
/** How long its mounts may take: one on a disk that does not answer can take forever. */
const MOUNT_MS = 30_000;
/** How long the code of a runtime may be on its way when its streams have closed. */
const CODE_MS = 2000;
/** For errors of mounts, and for one line of each place. */
const MAX_SAID_CHARS = 4096;
const NOT_UNDERSTOOD = "what the process that starts cells reported is not understood";

/**
 * A process that starts the runtime for a few cells of one image: the kernel copies the page tables of this process once for all of
 * them, and their image is mounted by the time it is needed. It ends after its cells, or when this process ends.
 */
export class Launcher {
  readonly places: readonly LaunchPlace[];
  readonly #child: ChildProcess;
  readonly #dir: string;
  readonly #ready = Promise.withResolvers<void>();
  readonly #over = Promise.withResolvers<void>();
  readonly #codes: PromiseWithResolvers<number | null>[];
  /** Of the pipes of each place, from when they are open until it is started or let go. */
  readonly #pipes: (readonly [stdin: number, stdout: number, stderr: number] | "let go" | undefined)[] = [];
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

  private constructor(dir: string, { paths, programs, gate, image, places }: LauncherRequest) {
    this.#dir = dir;
    const words = [
      image.dir,
      image.layers.map((layer) => `l/${layer}`).join(":"),
      paths.cells,
      paths.state,
      programs.runtime.path,
      runtimeWords(programs.runtime.kind).join(" "),
      paths.memory,
      String(places),
      programs.env === undefined ? "" : `${programs.env} --default-signal=INT`,
    ];
    this.#codes = Array.from({ length: places }, () => Promise.withResolvers<number | null>());
    const script = [gate, "unshare", "--mount", gate, "sh", "-c", LAUNCHER_SCRIPT, gate, ...words];
    const [program = "", ...rest] = [...asByTheEngine(gate), ...script];
    const child = spawn(program, rest, {
      cwd: dir,
      stdio: "pipe",
      env: LAUNCHER_ENV,
      // In a session of its own no key of a terminal signals it, nor runc, which would pass it on to the worker.
      detached: true,
    });
    this.#child = child;
    this.#ready.promise.catch(() => {});
    (child.stdin as Socket | null)?.on("error", () => {}).unref();
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

  #place(at: number, memory: string, ended: Promise<number | null>): LaunchPlace {
    // By its own process the mounts are seen; the id is not that of another while it was not waited for.
    const seen = `/proc/${this.#child.pid}/root${join(memory, String(at))}`;
    return {
      start: async ({ run, id, config, mountPoints, signal }) => {
        this.#use(1);
        try {
          await this.#mounted(signal);
          makeMountPoints(join(seen, "root"), mountPoints);
        } catch (error) {
          this.#use(-1);
          throw error;
        }
        void ended.then(() => this.#use(-1));
        writeFileSync(join(seen, "config.json"), config, { mode: 0o600, flag: "wx" });
        // Held open, since the launcher may end with its last cell.
        const log = await open(join(seen, "log"), "a+", 0o600);
        const streams = this.#streams(at);
        streams.stdin.write(`${run} ${id}\n`);
        const end = ended.then(async (code) => {
          await using _ = log;
          return code === null ? null : { code, log: await log.readFile("utf8") };
        });
        return { ...streams, end };
      },
      letGo: () => {
        const pipes = this.#pipes[at];
        this.#pipes[at] = "let go";
        if (typeof pipes === "object") for (const fd of pipes) fs.closeSync(fd);
      },
    };
  }

  /** What the caller has of the pipes of a place that is started. */
  #streams(at: number): PlaceStreams {
    const pipes = this.#pipes[at];
    if (typeof pipes !== "object") throw new Error("a place of a launcher is started once");
    this.#pipes[at] = "let go";
    const [stdin, stdout, stderr] = [
      new Socket({ fd: pipes[0], readable: false, writable: true }),
      new Socket({ fd: pipes[1], readable: true, writable: false }),
      new Socket({ fd: pipes[2], readable: true, writable: false }),
    ];
    for (const stream of [stdin, stdout, stderr]) stream.on("error", () => {});
    const closed = Promise.all([stdout, stderr].map((stream) => new Promise((done) => stream.once("close", done))));
    // The shell holds them too: without them it has said what it had to say, or was killed.
    void closed.then(() => setTimeout(() => this.#codes[at]?.resolve(null), CODE_MS).unref());
    return { stdin, stdout, stderr };
  }

  /** The launcher holds both ends of each pipe until all are open here, so none has ended before it is used. */
  #openPipes(): void {
    const { O_RDONLY, O_WRONLY, O_NONBLOCK } = fs.constants;
    const opened = (fd: number, access: number): number =>
      fs.openSync(`/proc/${this.#child.pid}/fd/${fd}`, access | O_NONBLOCK);
    try {
      for (const at of this.#codes.keys()) {
        const first = 3 + 3 * at;
        if (this.#pipes[at] === undefined)
          this.#pipes[at] = [opened(first, O_WRONLY), opened(first + 1, O_RDONLY), opened(first + 2, O_RDONLY)];
      }
      this.#child.stdin?.end("\n");
      this.#ready.resolve();
    } catch (error) {
      this.#stop((error as Error).message);
    }
  }

  /** Rejects if this takes too long: then no cell of this launcher would start. A cell that is not wanted any more ends alone. */
  async #mounted(signal: AbortSignal): Promise<void> {
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => this.#stop(`it took more than ${MOUNT_MS / 1000} s`), MOUNT_MS);
    using _ = onAbort(signal, () => reject(signal.reason));
    try {
      await Promise.race([this.#ready.promise, aborted]);
    } finally {
      clearTimeout(timer);
    }
    if (this.#child.exitCode !== null || this.#child.signalCode !== null)
      throw new EngineTrouble("the process that starts cells has ended");
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
      const line = this.#said.slice(0, end);
      this.#said = this.#said.slice(end + 1);
      const [, place, code] = /^(\d+) (\d+)$/.exec(line) ?? [];
      const told = this.#codes[Number(place)];
      if (line === "ready") this.#openPipes();
      else if (told !== undefined) told.resolve(Number(code));
      else {
        this.#stop(NOT_UNDERSTOOD);
        return;
      }
    }
    if (this.#said.length > MAX_SAID_CHARS) this.#stop(NOT_UNDERSTOOD);
  }

  /** Ends every runc that it started: their cells are lost. */
  #stop(reason: string): void {
    this.#child.stdout?.removeAllListeners("data").resume();
    const { pid, exitCode, signalCode } = this.#child;
    // The number is that of its group while it was not waited for.
    if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, "SIGKILL");
    this.#end(reason);
  }

  #end(reason: string): void {
    this.#ready.reject(new EngineTrouble(`the image could not be mounted for a cell: ${reason}`));
    this.#over.resolve();
    for (const { resolve } of this.#codes) resolve(null);
    void rm(this.#dir, { recursive: true, force: true }).catch(() => {});
  }
}

/**
 * The words before the command line of a program, so that it does not have from this process what the Engine's containers do not
 * have either: the Engine is another process than the one that asks it. runc 1.1 sets none of this. What is as usual costs nothing.
 * Throws if this process cannot read what it has.
 *
 * @param gate the static binary, whose programs are used. It has no `chrt` and no `nice`: the machine's own are, and if one is
 *   needed and missing, nothing starts.
 */
export function asByTheEngine(gate: string): string[] {
  const words = [
    // Nothing shows a class for disks, so that is always set. A real-time one would starve the machine.
    [gate, "ionice", "-c", "0"],
    ...(policyIsUsual() ? [] : [["chrt", "--other", "0"]]),
    ...(getPriority() === 0 ? [] : [["nice", "-n", String(-getPriority())]]),
    ...affinity().map((mask) => [gate, "taskset", mask]),
    // The name of the usual one, on a processor of any kind. Others turn off that addresses are random.
    ...(personalityIsUsual() ? [] : [[gate, "linux64"]]),
    // The number of the user who logged in, which a worker could read.
    ...(loginIsUnknown() ? [] : [[gate, "sh", "-c", FORGET_LOGIN, gate]]),
  ];
  return words.flat();
}

/** The kernel may refuse to change the number: then nothing starts, unless it is unknown already. */
const FORGET_LOGIN = `login=
{ echo 4294967295 > /proc/self/loginuid || read -r login < /proc/self/loginuid; } 2> /dev/null
case $login in "" | 4294967295) exec "$@" ;; esac
echo "the number of the user who logged in cannot be hidden from workers: start Corral with CAP_AUDIT_CONTROL" >&2
exit 1`;

/** The 41st field of proc(5)'s `stat`, of which the second may contain anything. */
function policyIsUsual(): boolean {
  const fields = ownSetting("/proc/self/stat")
    .replace(/^.*\) /s, "")
    .split(" ");
  return fields[38] === "0";
}

/** The mask of all processors, if this process may not use all of them. */
function affinity(): string[] {
  const allowed = /^Cpus_allowed_list:\s*(\S+)$/m.exec(ownSetting("/proc/self/status"))?.[1];
  const online = ownSetting("/sys/devices/system/cpu/online").trim();
  if (allowed === undefined || allowed === online) return [];
  const last = Number(/\d+$/.exec(online)?.[0] ?? 0);
  return ["f".repeat(Math.floor(last / 4) + 1)];
}

function personalityIsUsual(): boolean {
  return Number.parseInt(ownSetting("/proc/self/personality"), 16) === 0;
}

/** Also true on a kernel without it. */
function loginIsUnknown(): boolean {
  return ["", "4294967295"].includes(ownSetting("/proc/self/loginuid"));
}

/** Empty if the kernel does not have this file. */
function ownSetting(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "";
    throw error;
  }
}
