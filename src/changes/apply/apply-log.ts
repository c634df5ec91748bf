import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { sync } from "../../files/host/content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import type { ApplyLimits } from "./fitness.ts";
import type { Settled, Verdict } from "./verdict.ts";

/** What was agreed to, written down whole before anything is changed. */
export interface Intent {
  /** The changeset's id. */
  readonly id: string;
  /** The indexes that were agreed to. */
  readonly which: readonly number[];
  readonly limits: ApplyLimits;
}

/** What is about to be put in place, or taken away, under which inode it is to be known. */
export interface Ready {
  readonly index: number;
  /** Empty for what is not made but taken away, or given other permission bits. */
  readonly inode: string;
}

/** What was written cannot be understood, so nothing is finished by it. Its folder has to be looked at by hand. */
export class BrokenApplyLog extends Error {}

const NAME = "journal";
/** Far more than the largest changeset needs. */
const MAX_BYTES = 128 * 1024 ** 2;

const index = z.number().int().min(0);
const bytes = z.number().min(0);
const header = z.strictObject({
  version: z.literal(1),
  id: z.string(),
  token: z.string().regex(/^[0-9a-f]{32}$/),
  which: z.array(index),
  limits: z.strictObject({ fileBytes: bytes, totalBytes: bytes }),
});
const line = z.union([
  z.strictObject({ ready: index, inode: z.string() }),
  z.strictObject({
    done: index,
    outcome: z.enum(["applied", "refused", "conflict", "held"]),
    reason: z.string().nullable(),
  }),
]);

/**
 * The log of one application (write-ahead, one JSON value a line): what was agreed to, what is ready to be put in
 * place, and what is done. A process that dies in between leaves enough for another one to go on. The last line may be
 * torn; the first never is, since the file gets its name when that is on the disk.
 */
export class ApplyLog implements Disposable {
  readonly intent: Intent;
  /** Makes the names of temporary files, so that nobody can guess them and everybody who reads this finds them. */
  readonly token: string;
  readonly #file: Descriptor;
  readonly #ready: Map<number, Ready>;
  readonly #done: Map<number, Verdict>;

  private constructor(file: Descriptor, text: Text) {
    const { id, which, limits, token } = text.header;
    this.intent = { id, which, limits };
    this.token = token;
    this.#file = file;
    this.#ready = text.ready;
    this.#done = text.done;
  }

  /** Null where nothing was begun, or all that was begun has been forgotten. */
  static open(dir: string): ApplyLog | null {
    const path = join(dir, NAME);
    if (!fs.existsSync(path)) return null;
    const file = new Descriptor(
      fs.openSync(path, fs.constants.O_RDWR | fs.constants.O_APPEND | fs.constants.O_NOFOLLOW),
    );
    try {
      const { size } = file.stat();
      if (size > MAX_BYTES) throw new BrokenApplyLog("the log is too large");
      const whole = Buffer.alloc(size);
      fs.readSync(file.fd, whole, 0, size, 0);
      const end = whole.lastIndexOf(0x0a) + 1;
      const text = parse(whole.subarray(0, end).toString("utf8"));
      fs.ftruncateSync(file.fd, end);
      return new ApplyLog(file, text);
    } catch (error) {
      file[Symbol.dispose]();
      throw error;
    }
  }

  static begin(dir: string, intent: Intent): ApplyLog {
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
    const fresh = join(dir, `${NAME}.new`);
    const first = { version: 1, ...intent, token: randomBytes(16).toString("hex") };
    fs.writeFileSync(fresh, `${JSON.stringify(first)}\n`, { mode: 0o600, flush: true });
    fs.renameSync(fresh, join(dir, NAME));
    syncFolder(dir);
    const log = ApplyLog.open(dir);
    if (log === null) throw new BrokenApplyLog("the log went away");
    return log;
  }

  /** When the caller has written down what became of it all. */
  static forget(dir: string): void {
    fs.rmSync(join(dir, NAME), { force: true });
    syncFolder(dir);
  }

  ready(change: number): Ready | undefined {
    return this.#ready.get(change);
  }

  done(change: number): Verdict | undefined {
    return this.#done.get(change);
  }

  /** Lasts through a crash of the machine, and must, before anything is put in place. */
  async noteReady(all: readonly Ready[]): Promise<void> {
    if (all.length === 0) return;
    this.#append(all.map((ready) => ({ ready: ready.index, inode: ready.inode })));
    await sync(this.#file);
  }

  /** May be lost: what is ready and in its place is found to be done. */
  noteDone(all: readonly Settled[]): void {
    this.#append(all.map(({ change, outcome, reason }) => ({ done: change.index, outcome, reason })));
  }

  #append(lines: readonly object[]): void {
    if (lines.length > 0) fs.appendFileSync(this.#file.fd, lines.map((one) => `${JSON.stringify(one)}\n`).join(""));
  }

  [Symbol.dispose](): void {
    this.#file[Symbol.dispose]();
  }
}

interface Text {
  readonly header: z.infer<typeof header>;
  readonly ready: Map<number, Ready>;
  readonly done: Map<number, Verdict>;
}

function parse(text: string): Text {
  const [first = "", ...rest] = text.split("\n").filter((one) => one !== "");
  const ready = new Map<number, Ready>();
  const done = new Map<number, Verdict>();
  for (const one of rest) {
    const value = parsed(line, one);
    if ("ready" in value) ready.set(value.ready, { index: value.ready, inode: value.inode });
    else done.set(value.done, { outcome: value.outcome, reason: value.reason });
  }
  return { header: parsed(header, first), ready, done };
}

function parsed<T>(schema: z.ZodType<T>, text: string): T {
  try {
    return schema.parse(JSON.parse(text));
  } catch (cause) {
    throw new BrokenApplyLog("a line of the log is none", { cause });
  }
}

function syncFolder(dir: string): void {
  using folder = Descriptor.name(dir, true).reopenFolder();
  fs.fsyncSync(folder.fd);
}
