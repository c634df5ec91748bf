import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { sync } from "../../files/host/content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import type { ApplyLimits, ChangeVerdict, Settled } from "./fitness.ts";

/** What was approved. It is written to disk before anything is changed. */
export interface Intent {
  /** The changeset's id. */
  readonly id: string;
  /** The indexes of the approved changes. */
  readonly which: readonly number[];
  readonly limits: ApplyLimits;
}

/** A change that is about to be put in place, and the inode that identifies it. */
export interface Ready {
  readonly index: number;
  /** Empty for a deletion or a change of permission bits, which make no new entry. */
  readonly inode: string;
}

/** The log cannot be read, so the application cannot be finished. A person must inspect its folder. */
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
 * The write-ahead log of one application, one JSON value per line: what was approved, what is ready, and what is done.
 * Another process can continue from it. The last line may be incomplete; the first is flushed before the file gets its name.
 */
export class ApplyLog implements Disposable {
  readonly intent: Intent;
  /** Names of temporary files derive from it: workers cannot guess them, and a process that continues finds them. */
  readonly token: string;
  readonly #file: Descriptor;
  readonly #ready: Map<number, Ready>;
  readonly #done: Map<number, ChangeVerdict>;

  private constructor(file: Descriptor, text: Text) {
    const { id, which, limits, token } = text.header;
    this.intent = { id, which, limits };
    this.token = token;
    this.#file = file;
    this.#ready = text.ready;
    this.#done = text.done;
  }

  /** Null if no application was begun, or the last one is complete. */
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
    if (log === null) throw new BrokenApplyLog("the log disappeared");
    return log;
  }

  /** Called after the caller has stored all results. */
  static forget(dir: string): void {
    fs.rmSync(join(dir, NAME), { force: true });
    syncFolder(dir);
  }

  ready(change: number): Ready | undefined {
    return this.#ready.get(change);
  }

  done(change: number): ChangeVerdict | undefined {
    return this.#done.get(change);
  }

  /** Flushed to the disk: this must survive a crash before anything is put in place. */
  async noteReady(all: readonly Ready[]): Promise<void> {
    if (all.length === 0) return;
    this.#append(all.map((ready) => ({ ready: ready.index, inode: ready.inode })));
    await sync(this.#file);
  }

  /** Not flushed: if it is lost, the entry's inode shows that the change was made. */
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
  readonly done: Map<number, ChangeVerdict>;
}

function parse(text: string): Text {
  const [first = "", ...rest] = text.split("\n").filter((one) => one !== "");
  const ready = new Map<number, Ready>();
  const done = new Map<number, ChangeVerdict>();
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
    throw new BrokenApplyLog("the log has an invalid line", { cause });
  }
}

function syncFolder(dir: string): void {
  using folder = Descriptor.name(dir, true).reopenFolder();
  fs.fsyncSync(folder.fd);
}
