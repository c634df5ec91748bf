import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { EngineTrouble } from "../port/driver.ts";

/** For so many commands pipes are made at once. */
const BATCH = 16;
const MAKE_MS = 10_000;
const KINDS = ["in", "out", "err"] as const;
const { O_RDONLY, O_WRONLY, O_NONBLOCK, O_NOFOLLOW } = fs.constants;

/**
 * Named pipes in a directory that the cell sees and cannot change. A name is known to no process of the cell before its
 * command begins, and is removed then.
 */
export class PipeNames {
  readonly #dir: string;
  readonly #ready: string[] = [];
  #making: Promise<void> | null = null;
  #isClosed = false;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Makes more ahead, if there are few. */
  prepare(): void {
    if (this.#isClosed || this.#ready.length > BATCH / 2 || this.#making !== null) return;
    this.#making = this.#make().finally(() => {
      this.#making = null;
    });
    // The command that waits for them gets the error.
    this.#making.catch(() => {});
  }

  async take(): Promise<CommandPipes> {
    for (;;) {
      const name = this.#ready.shift();
      this.prepare();
      if (name !== undefined) return new CommandPipes(this.#dir, name);
      if (this.#isClosed) throw new EngineTrouble("the cell has ended");
      await this.#making;
    }
  }

  /** Makes no more. Afterwards the directory can be removed: nothing writes to it. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#making?.catch(() => {});
  }

  async #make(): Promise<void> {
    const names = Array.from({ length: BATCH }, () => randomBytes(16).toString("hex"));
    const paths = names.flatMap((name) => KINDS.map((kind) => join(this.#dir, `${name}.${kind}`)));
    try {
      // The cell may have another user than this process. No other program reaches the directory.
      await promisify(execFile)("mkfifo", ["-m", "666", ...paths], { timeout: MAKE_MS });
    } catch (error) {
      throw new EngineTrouble(`pipes for a command could not be made: ${(error as Error).message}`, { cause: error });
    }
    this.#ready.push(...names);
  }
}

/** The three pipes of one command, opened on this side. */
export class CommandPipes {
  readonly name: string;
  readonly #dir: string;
  /** The other ends, which stand in for the command's until it has opened its own: else a pipe would have ended before. */
  #others: number[] = [];

  constructor(dir: string, name: string) {
    this.#dir = dir;
    this.name = name;
  }

  reader(kind: "out" | "err"): Socket {
    const fd = this.#open(kind, O_RDONLY);
    this.#others.push(this.#open(kind, O_WRONLY));
    return new Socket({ fd, readable: true, writable: false });
  }

  writer(): Socket {
    this.#others.push(this.#open("in", O_RDONLY));
    const fd = this.#open("in", O_WRONLY);
    // All of the input may be written and closed before the command opens it, which needs a writer.
    this.#others.push(this.#open("in", O_WRONLY));
    return new Socket({ fd, readable: false, writable: true });
  }

  /** The command has opened its own ends, or never will: the names are of no use any more. */
  letGo(): void {
    const others = this.#others;
    this.#others = [];
    for (const fd of others) fs.closeSync(fd);
    for (const kind of KINDS) fs.rmSync(join(this.#dir, `${this.name}.${kind}`), { force: true });
  }

  #open(kind: (typeof KINDS)[number], access: number): number {
    return fs.openSync(join(this.#dir, `${this.name}.${kind}`), access | O_NONBLOCK | O_NOFOLLOW);
  }
}
