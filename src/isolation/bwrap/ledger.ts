import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { readdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseJson } from "../../json/parse-json.ts";
import { hasCode, nullFor } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../../state/owner.ts";
import { kernelText } from "../kernel/control-group.ts";
import type { Plan, PlannedUser } from "../plan/plan.ts";
import { type CellInfo, EngineTrouble } from "../port/driver.ts";
import { labelsFor, type Maker, readLabels } from "../port/labels.ts";
import { removeGroups } from "./groups.ts";

/** How the directory of a cell is called until its labels are in it. */
const DRAFT_PREFIX = ".new-";
/** Nothing of a cell exists before its directory has its name, which takes some milliseconds. */
const DRAFT_MS = 10 * 60_000;
const LABELS = "labels.json";
/** Different files that are kept for the next cells. */
const MAX_KEPT = 32;

/** The name of a run is that of another cell. */
export class RunNameTaken extends EngineTrouble {}

/** The directory of one cell. Its starter and its bubblewrap have it as their working directory, by which they are found. */
export interface BwrapFolder {
  readonly id: string;
  readonly run: string;
  readonly dir: string;
}

/** The directories of all cells of one state directory, by their runs. */
export class BwrapLedger {
  /** Where the pipes of its cells are: a process may have the same state directory open several times. */
  readonly pipesDir: string;
  /** Where the directories of cells are, by their runs. */
  readonly cellsDir: string;
  readonly #allPipes: string;
  readonly #maker: Maker;
  readonly #user: PlannedUser;
  readonly #kept = new Map<string, string>();

  /** `user`: whose processes the cells are. */
  constructor(dir: string, maker: Maker, user: PlannedUser) {
    this.#user = user;
    this.cellsDir = join(dir, "cells");
    this.#allPipes = join(dir, "pipes");
    const owned = join(this.#allPipes, encodeURIComponent(formatOwner(maker.owner)));
    this.pipesDir = join(owned, randomBytes(6).toString("hex"));
    this.#maker = maker;
  }

  /** It has its name only when its labels are in it: whatever is started for the cell is found by them if this process dies. */
  make(plan: Plan): BwrapFolder {
    for (const dir of [this.cellsDir, this.pipesDir])
      if (fs.mkdirSync(dir, { recursive: true, mode: 0o700 }) !== undefined && dir === this.pipesDir)
        for (const each of [dirname(dirname(dir)), dirname(dir), dir]) this.#give(each);
    const draft = join(this.cellsDir, `${DRAFT_PREFIX}${randomBytes(6).toString("hex")}`);
    const dir = join(this.cellsDir, plan.run);
    const id = this.#idOf(plan.run);
    fs.mkdirSync(draft, { mode: 0o700 });
    try {
      this.#give(draft);
      fs.writeFileSync(join(draft, LABELS), JSON.stringify(labelsFor(this.#maker, "cell", id, plan)), { mode: 0o600 });
      fs.renameSync(draft, dir);
      return { id, run: plan.run, dir };
    } catch (error) {
      fs.rmSync(draft, { recursive: true, force: true });
      if (hasCode(error, "ENOTEMPTY", "EEXIST"))
        throw new RunNameTaken(`the name of the run ${plan.run} is already in use`, { cause: error });
      throw error;
    }
  }

  /** A file with this content, which many cells may be given: Corral makes it once, or in the directory of the one cell. */
  keep(content: string | Buffer, { dir }: BwrapFolder): string {
    const name = sha256(content);
    const known = this.#kept.get(name);
    if (known !== undefined) return known;
    const isKept = this.#kept.size < MAX_KEPT;
    const file = join(isKept ? this.pipesDir : dir, name);
    if (isKept) this.#kept.set(name, file);
    this.write(file, content);
    return file;
  }

  /** For the user of cells alone. */
  write(file: string, content: string | Buffer): void {
    fs.writeFileSync(file, content, { mode: 0o600 });
    this.#give(file);
  }

  #give(path: string): void {
    if (this.#user.uid !== process.getuid?.()) fs.chownSync(path, this.#user.uid, this.#user.gid);
  }

  /** Every cell whose labels this state directory has sealed. */
  async list(): Promise<CellInfo[]> {
    const runs = (await readdir(this.cellsDir).catch(nullFor("ENOENT"))) ?? [];
    const found = await Promise.all(runs.filter((run) => !run.startsWith(DRAFT_PREFIX)).map((run) => this.#look(run)));
    return found.filter((cell) => cell !== null);
  }

  /** Removes the cells of owners that are certainly dead, and answers with their runs. */
  async reap(): Promise<string[]> {
    const removed: string[] = [];
    for (const { run, ownerAlive } of await this.list()) {
      if (ownerAlive) continue;
      await removeFolder(join(this.cellsDir, run));
      removed.push(run);
    }
    const drafts = ((await readdir(this.cellsDir).catch(nullFor("ENOENT"))) ?? []).filter((name) =>
      name.startsWith(DRAFT_PREFIX),
    );
    for (const name of drafts) {
      const made = await stat(join(this.cellsDir, name)).catch(nullFor("ENOENT"));
      if (made !== null && made.mtimeMs < Date.now() - DRAFT_MS)
        await rm(join(this.cellsDir, name), { recursive: true, force: true });
    }
    for (const name of (await readdir(this.#allPipes).catch(nullFor("ENOENT"))) ?? []) {
      const owner = ownerIn(name);
      if (owner !== null && isDead(owner, this.#maker.owner))
        await rm(join(this.#allPipes, name), { recursive: true, force: true });
    }
    return removed;
  }

  async #look(run: string): Promise<CellInfo | null> {
    const dir = join(this.cellsDir, run);
    const file = join(dir, LABELS);
    const [text, made] = await Promise.all([
      fs.promises.readFile(file, "utf8").catch(nullFor("ENOENT")),
      stat(file).catch(nullFor("ENOENT")),
    ]);
    const parsed = parseJson(text ?? "");
    const id = this.#idOf(run);
    const labelled = parsed.ok
      ? readLabels(this.#maker.sealKey, "cell", id, parsed.value as Record<string, string>)
      : null;
    if (labelled === null || labelled.run !== run || made === null) return null;
    const state = startersIn(dir).length > 0 ? "running" : "exited";
    const ownerAlive = !isDead(labelled.owner, this.#maker.owner);
    return { ...labelled, driver: "bwrap", id, state, createdAt: made.mtime.toISOString(), ownerAlive };
  }

  #idOf(run: string): string {
    return `corral-${sha256(this.#maker.sealKey).slice(0, 8)}-${run}`;
  }
}

function ownerIn(name: string): Owner | null {
  try {
    return parseOwner(decodeURIComponent(name));
  } catch {
    return null;
  }
}

const MAX_LOOKS = 500;
const PAUSE_MS = 5;

/**
 * Ends whatever works in the directory of a cell, and so the cell, which bubblewrap does not outlive. Then removes the directory, its labels last.
 * Rejects with `EngineTrouble` if that does not end.
 *
 * @param hasEnded true if its bubblewrap has ended by itself, which it does after the cell: nothing is looked for.
 */
export async function removeFolder(dir: string, hasEnded = false): Promise<void> {
  for (let looks = 0; !hasEnded; looks += 1) {
    if (killStarters(dir) === 0) break;
    if (looks === MAX_LOOKS) throw new EngineTrouble("a program that makes a cell cannot be ended");
    await pause(PAUSE_MS);
  }
  await removeGroups(dir);
  // A few small files, which promises would take longer for.
  const names = fs.existsSync(dir) ? fs.readdirSync(dir) : [];
  for (const name of names.filter((one) => one !== LABELS))
    fs.rmSync(join(dir, name), { recursive: true, force: true });
  fs.rmSync(dir, { recursive: true, force: true });
}

/** How many there were. */
export function killStarters(dir: string): number {
  const starters = startersIn(dir);
  for (const pid of starters) kill(pid);
  return starters.length;
}

/** No process in a cell has it as its working directory, and none but bubblewrap and what becomes it is there long. */
function startersIn(dir: string): number[] {
  const own = identityOf(dir);
  if (own === null) return [];
  return fs.readdirSync("/proc").flatMap((name) => {
    const pid = Number(name);
    const isHere = Number.isInteger(pid) && identityOf(`/proc/${pid}/cwd`) === own && !isEnding(pid);
    return isHere ? [pid] : [];
  });
}

function isEnding(pid: number): boolean {
  return /^State:\t[ZX]/m.test(kernelText(`/proc/${pid}/status`) ?? "State:\tX");
}

function identityOf(path: string): string | null {
  try {
    const { dev, ino } = fs.statSync(path, { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    return nullFor("ENOENT", "ESRCH", "EACCES")(error);
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!hasCode(error, "ESRCH")) throw error;
  }
}
