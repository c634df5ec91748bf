import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import type { PlannedUser } from "../plan/plan.ts";
import { type BwrapPrograms, launcherWords, type Shared } from "./cell-words.ts";

/** How long a launcher without a cell is kept. */
const IDLE_MS = 5000;
/** For the errors of a launcher. */
const MAX_SAID_CHARS = 4096;

/**
 * A process that starts cells: what they share is mounted once, and the kernel does not copy the page tables of this process for each. Its cells end with it, and it
 * ends with this process.
 */
export class BwrapLauncher {
  readonly #child: ChildProcess;
  readonly #cells = new Set<(why: string) => void>();
  #said = "";
  #idle: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(programs: BwrapPrograms, user: PlannedUser, shared: Shared) {
    const isOwn = user.uid === process.getuid?.();
    this.#child = spawn(programs.bwrap, launcherWords(shared), {
      // In a session of its own no key of a terminal ends it, and all cells with it.
      ...{ cwd: "/", env: SYSTEM_ENV, detached: true, stdio: ["pipe", "ignore", "pipe"] },
      ...(isOwn ? {} : user),
    });
    this.#child.stdin?.on("error", () => {});
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#said = `${this.#said}${chunk}`.slice(0, MAX_SAID_CHARS);
    });
    this.#child.once("error", (error) => this.#end(error.message));
    this.#child.once("close", () => this.#end(this.#said.trim() || "no reason given"));
    this.#refer();
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Starts, in the directory of the run, what the file of that name says. `onEnd`: if this launcher ends before the caller is done with the cell. */
  start(run: string, name: string, onEnd: (why: string) => void): Disposable {
    this.#cells.add(onEnd);
    this.#refer();
    this.#child.stdin?.write(`${run} ${name}\n`);
    return {
      [Symbol.dispose]: () => {
        if (this.#cells.delete(onEnd)) this.#refer();
      },
    };
  }

  /** It is not used any more, and ends. */
  letGo(): void {
    clearTimeout(this.#idle);
    this.#isOver = true;
    this.#child.stdin?.end();
  }

  /** This process does not wait for the end of a launcher that has nothing to do. */
  #refer(): void {
    clearTimeout(this.#idle);
    const how = this.#cells.size > 0 ? "ref" : "unref";
    for (const each of [this.#child, this.#child.stdin as Socket | null, this.#child.stderr as Socket | null])
      each?.[how]();
    if (how === "unref") this.#idle = setTimeout(() => this.letGo(), IDLE_MS).unref();
  }

  #end(why: string): void {
    clearTimeout(this.#idle);
    this.#isOver = true;
    for (const tell of this.#cells) tell(why);
    this.#cells.clear();
  }
}

/** BwrapLaunchers wait for the next cells that share the same. */
export class BwrapLaunchers {
  readonly #programs: BwrapPrograms;
  readonly #user: PlannedUser;
  readonly #all = new Map<string, BwrapLauncher>();

  constructor(programs: BwrapPrograms, user: PlannedUser) {
    this.#programs = programs;
    this.#user = user;
  }

  take(shared: Shared): BwrapLauncher {
    // A launcher knows no mount that this machine gets later.
    const { entries: _, ...own } = shared;
    const key = `${JSON.stringify(own)}${readFileSync("/proc/self/mountinfo", "latin1")}`;
    const found = this.#all.get(key);
    if (found !== undefined && !found.isOver) return found;
    for (const [old, launcher] of this.#all) if (launcher.isOver) this.#all.delete(old);
    const made = new BwrapLauncher(this.#programs, this.#user, shared);
    this.#all.set(key, made);
    return made;
  }

  /** Those that have no cell. */
  close(): void {
    for (const launcher of this.#all.values()) launcher.letGo();
  }
}
