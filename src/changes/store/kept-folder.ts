import { readFileSync, statSync } from "node:fs";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import type { Changeset } from "../model/changeset.ts";
import { isThere } from "./existing.ts";
import type { KeptChangeset } from "./kept-changeset.ts";
import { type KeptState, parseChangeset, parseState } from "./record.ts";
import { waitingIn } from "./waiting.ts";

/** A record that cannot be read. The message says why, in one line. */
export class BrokenRecord extends Error {}

const MAX_RECORD_BYTES = 256 * 1024 ** 2;

/** The directory of one kept changeset: its record, its state, the run's own versions, and the log of applying it. */
export class KeptFolder {
  readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  /** The directory of the run's own versions. The path in the record is not used, since the store may have moved. */
  content(mount: number): string {
    return join(this.dir, "content", String(mount));
  }

  /** There while changes are being applied, and afterwards where that was interrupted. */
  get applyLog(): string {
    return join(this.dir, "journal");
  }

  /** Locked by the process that works on the changeset. */
  get lock(): string {
    return join(this.dir, "owner");
  }

  /** False for one that was only made. */
  get isWritten(): boolean {
    return isThere(join(this.dir, "changeset.json"));
  }

  async readChangeset(): Promise<Changeset> {
    return this.located(await this.#read("changeset.json", parseChangeset));
  }

  /** The changeset with its content in this directory. */
  located(changeset: Changeset): Changeset {
    return {
      ...changeset,
      mounts: changeset.mounts.map((mount, index) => ({ ...mount, content: this.content(index) })),
    };
  }

  async read(): Promise<KeptChangeset> {
    const [changeset, state] = await Promise.all([this.readChangeset(), this.readState()]);
    return { changeset, state, waiting: waitingIn(changeset, state) };
  }

  async readState(): Promise<KeptState> {
    return await this.#read("state.json", parseState);
  }

  async writeChangeset(changeset: Changeset): Promise<void> {
    await this.#write("changeset.json", this.located(changeset));
  }

  async writeState(state: KeptState): Promise<void> {
    await this.#write("state.json", state);
  }

  /** Moves the run's own versions in. It is the same file system, so nothing is copied and no inode changes. */
  async takeContent({ mounts }: Pick<Changeset, "mounts">): Promise<void> {
    await mkdir(join(this.dir, "content"), { recursive: true, mode: 0o700 });
    for (const [index, mount] of mounts.entries()) await rename(mount.content, this.content(index));
  }

  async giveContentBack({ mounts }: Pick<Changeset, "mounts">): Promise<void> {
    for (const [index, mount] of mounts.entries()) await rename(this.content(index), mount.content);
  }

  /** At once: each step through Node's pool of threads takes longer than to read a small file, and a review of a fleet reads thousands. */
  async #read<T>(name: string, parse: (raw: unknown) => T): Promise<T> {
    const path = join(this.dir, name);
    try {
      if (statSync(path).size > MAX_RECORD_BYTES) throw new Error("it is too large");
      return parse(JSON.parse(readFileSync(path, "utf8")));
    } catch (cause) {
      throw new BrokenRecord(`${name}: ${whyBroken(cause)}`, { cause });
    }
  }

  async #write(name: string, value: unknown): Promise<void> {
    await writeAtomically(join(this.dir, name), JSON.stringify(value), { durable: true });
  }
}

function whyBroken(cause: unknown): string {
  if (hasCode(cause, "ENOENT")) return "it is missing";
  if (cause instanceof SyntaxError) return "it is not JSON";
  const { issues } = cause as { issues?: readonly { path: readonly PropertyKey[]; message: string }[] };
  const [first] = issues ?? [];
  if (first !== undefined) return `${first.path.map(String).join(".")}: ${first.message}`.replace(/^: /, "");
  return cause instanceof Error ? cause.message : String(cause);
}
