import { randomUUID } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** Who works on a kept changeset, and who of those that ever did is certainly gone, for good. */
export interface Holder {
  /** One line: a process, told apart from every other that was or will be. */
  readonly name: string;
  readonly isDead: (name: string) => boolean;
}

const NAME = "owner";
/** Each try but the last removes one dead holder. */
const MAX_TRIES = 4;

/** Holds a directory for this process, until it is disposed of; null where a living process holds it. */
export async function hold(dir: string, { name, isDead }: Holder): Promise<AsyncDisposable | null> {
  const file = join(dir, NAME);
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    if (await claimed(file, name)) return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
    const other = await readIfThere(file);
    if (other === null) continue;
    if (other !== "" && !isDead(other)) return null;
    await evict(file, other);
  }
  return null;
}

/** True where a living process holds the directory. */
export async function isHeld(dir: string, { isDead }: Holder): Promise<boolean> {
  const other = await readIfThere(join(dir, NAME));
  return other !== null && other !== "" && !isDead(other);
}

/** A link fails where the name is taken, and makes the name and its content appear at once. */
async function claimed(file: string, name: string): Promise<boolean> {
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, name, { mode: 0o600, flag: "wx" });
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** Moves what a dead process left away; what somebody else put there in between is put back. */
async function evict(file: string, dead: string): Promise<void> {
  const aside = `${file}.${randomUUID()}`;
  try {
    await rename(file, aside);
    if ((await readIfThere(aside)) !== dead) await link(aside, file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT" && code !== "EEXIST") throw error;
  } finally {
    await rm(aside, { force: true });
  }
}

async function readIfThere(file: string): Promise<string | null> {
  return await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
}
