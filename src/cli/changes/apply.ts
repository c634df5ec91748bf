import { type Approver, noTerminal } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import type {
  AppliedChange,
  AppliedChangeset,
  ApplyRequest,
  ForeseenChangeset,
} from "../../operations/foreseen-changes.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import { covers, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { counted } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { personAt } from "../consent/person.ts";
import { type ChangesOffer, openChangesets } from "../host/decisions.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, printJson, printJsonLine, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import {
  type ChangesetTarget,
  countsText,
  forEach,
  NONE,
  type TargetOptions,
  type Targets,
  targetsOf,
} from "./targets.ts";

interface Manner {
  readonly json: boolean;
  readonly isFleet: boolean;
  /** The changeset was named, so its answer in JSON is no list. */
  readonly isOne: boolean;
}

/** The reason of what a person skipped. */
const NOT_CHOSEN = "it was not chosen";

/** Of a fleet, how many changes that were not applied are named one by one. */
const MAX_NAMED = 50;

/** Tells what was applied: each changeset by itself, or all of a fleet together, however many there are. */
class AppliedTally {
  readonly #terminal: Terminal;
  readonly #how: Manner;
  readonly #answers: object[] = [];
  readonly #counts = new Map<string, number>();
  #named = 0;
  #items = 0;

  constructor(terminal: Terminal, how: Manner) {
    this.#terminal = terminal;
    this.#how = how;
  }

  add(done: AppliedChangeset, { item }: ChangesetTarget): void {
    this.#items += 1;
    for (const { outcome } of done.changes) this.#counts.set(outcome, (this.#counts.get(outcome) ?? 0) + 1);
    this.#tellUnapplied(done.changes);
    const { json, isFleet } = this.#how;
    // One line for each item: ten thousand of them are never in memory.
    if (json && isFleet) printJsonLine(this.#terminal, { item, ...done });
    else if (json) this.#answers.push(done);
    else if (!isFleet) this.#tellCounts(done);
  }

  end(): void {
    const { json, isFleet, isOne } = this.#how;
    if (json && !isFleet) for (const one of isOne ? this.#answers : [this.#answers]) printJson(this.#terminal, one);
    if (this.#named > MAX_NAMED) say(this.#terminal, `corral: and ${this.#named - MAX_NAMED} more`);
    if (json || !isFleet || this.#items === 0) return;
    const counts = [...this.#counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ");
    const changes = [...this.#counts.values()].reduce((sum, count) => sum + count, 0);
    // A folder that an item made is a change too, so there are more of them than files.
    const what = `${counted(this.#items, "item")} with ${counted(changes, "change")}`;
    this.#terminal.stdout.write(`${what}: ${counts || "nothing"}\n`);
  }

  #tellUnapplied(changes: readonly AppliedChange[]): void {
    const withheld = new Map<string, number>();
    // A person who skipped a file knows it.
    for (const { path, outcome, reason } of changes.filter((one) => one.reason !== NOT_CHOSEN)) {
      const why = printableLine(reason ?? "", 500);
      // One answer may be on thousands of changes.
      if (outcome === "denied" || outcome === "held") withheld.set(why, (withheld.get(why) ?? 0) + 1);
      else if (outcome !== "applied") this.#name(`${outcome}: ${visibleName(path)}: ${why}`);
    }
    for (const [why, count] of withheld) this.#name(`corral: ${count} not applied: ${why}`);
  }

  #name(line: string): void {
    this.#named += 1;
    if (!this.#how.isFleet || this.#named <= MAX_NAMED) say(this.#terminal, line);
  }

  #tellCounts({ changes, left }: AppliedChangeset): void {
    if (changes.every(({ outcome }) => outcome === "denied" || outcome === "held"))
      say(this.#terminal, "Nothing was applied.");
    else this.#terminal.stdout.write(`${countsText(changes)}${left > 0 ? `; ${left} wait` : ""}\n`);
  }
}

interface ApplyVerbOptions extends TargetOptions {
  readonly only: readonly string[];
  readonly approve?: ApprovalMode;
  readonly digest?: string;
  readonly yes?: boolean;
}

/**
 * `corral changes apply`. The project's rules come first, then its mode. In the mode interactive a person at a terminal decides
 * file by file; without a terminal nothing is applied that no rule approves. Exit status 1 if anything was not applied.
 */
export async function applyVerb(
  ids: readonly string[],
  options: ApplyVerbOptions,
  terminal: Terminal,
): Promise<number> {
  const only = options.only.length === 0 ? null : options.only.map(pathFrom);
  const isOne = ids.length === 1;
  if (only !== null && !isOne) throw new UsageError("--only works with one changeset");
  if (options.digest !== undefined && !isOne) throw new UsageError("--digest works with one changeset");
  if (options.yes && options.approve !== undefined) throw new UsageError("use either --yes or --approve");
  await using changesets = await openChangesets(terminal);
  const targets = await targetsOf("apply", changesets, ids, options, terminal);
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const tally = new AppliedTally(terminal, { json: options.json === true, isFleet: targets.fleet !== null, isOne });
  const applying = new Applying(changesets, { ...options, only }, terminal, stop, tally);
  const status = await forEach(targets, terminal, (target, at) => applying.one(target, at, targets)).catch(
    (error: unknown) => {
      if (stop.signal.aborted) return EXIT.cancelled;
      throw error;
    },
  );
  tally.end();
  if (targets.count === 0 && !options.json) say(terminal, NONE);
  if (!stop.signal.aborted) return status;
  say(terminal, stoppedText(applying.decided, targets));
  return EXIT.cancelled;
}

const USER_APPROVED: ApplyRequest["approval"] = () => ({
  approvalMode: "interactive",
  approver: { decide: async () => ({ outcome: "approved", scope: "once", reason: "the user approved it" }) },
});

/** `only`: null: all changes. */
type ApplyingOptions = Omit<ApplyVerbOptions, "only"> & { readonly only: readonly VirtualPath[] | null };

class Applying {
  readonly #changesets: ChangesOffer;
  readonly #options: ApplyingOptions;
  readonly #terminal: Terminal;
  readonly #stop: ReturnType<typeof stoppable>;
  readonly #tally: AppliedTally;
  readonly #approval: ApplyRequest["approval"];
  /** What further changesets were when the person agreed to all of them; null: the person is asked. */
  #agreed: ReadonlyMap<string, string> | null = null;
  #shown: ReadonlyMap<string, string> | null = null;
  /** Changesets that were decided on. */
  decided = 0;

  constructor(
    changesets: ChangesOffer,
    options: ApplyingOptions,
    terminal: Terminal,
    stop: ReturnType<typeof stoppable>,
    tally: AppliedTally,
  ) {
    this.#changesets = changesets;
    this.#options = options;
    this.#terminal = terminal;
    this.#stop = stop;
    this.#tally = tally;
    let person: Approver | null = null;
    const asked = (project: Project) => {
      person ??= personAt(project, { terminal, stop });
      return {
        ...present({ approvalMode: options.approve }),
        person: person ?? noTerminal,
      };
    };
    this.#approval = options.yes ? "agreed" : asked;
  }

  /** The exit status; null: the person stopped. */
  async one(target: ChangesetTarget, at: number, targets: Targets): Promise<number | null> {
    this.#stop.signal.throwIfAborted();
    const seen = this.#asksHere && this.#agreed === null ? await this.#seen(target.id) : null;
    if (seen !== null) return await this.#reviewed(seen, target, at, targets);
    // What was not there when the person agreed has no digest, and so is not applied.
    const digest = this.#agreed === null ? this.#options.digest : (this.#agreed.get(target.id) ?? "");
    const { only } = this.#options;
    const { applyRuled } = this.#changesets;
    if (applyRuled !== undefined && this.#agreed === null && !this.#options.yes)
      return this.#decided(await applyRuled(target.id, { only, digest }), target);
    const done = await this.#changesets.apply(target.id, {
      ...(only === null ? {} : { only }),
      approval: this.#agreed === null ? this.#approval : USER_APPROVED,
      signal: this.#stop.signal,
      ...(this.#agreed === null ? {} : { hostExecuted: [] }),
      ...present({ digest }),
    });
    return this.#decided(done, target);
  }

  get #asksHere(): boolean {
    const { stdin, stderr } = this.#terminal;
    return stdin.isTTY === true && stderr.isTTY === true && !this.#options.yes;
  }

  /** Null if no person decides in this project's mode. */
  async #seen(id: string): Promise<ForeseenChangeset | null> {
    const seen = await this.#changesets.foresee(id);
    if ((this.#options.approve ?? seen.mode) !== "interactive") return null;
    const { only, digest = seen.digest } = this.#options;
    if (only === null) return { ...seen, digest };
    const parts = seen.parts.filter(({ path }) => only.some((wanted) => covers(wanted, path)));
    // `apply` names what is wrong with the paths.
    return parts.length === 0 ? null : { ...seen, digest, parts };
  }

  async #reviewed(
    seen: ForeseenChangeset,
    target: ChangesetTarget,
    at: number,
    targets: Targets,
  ): Promise<number | null> {
    const { reviewed } = await import("../consent/review.ts");
    this.#shown ??= await this.#digests(targets);
    const done: AppliedChange[] = [];
    let left = seen.waiting;
    let isDiscarded = false;
    const end = await reviewed(seen, this.#terminal, {
      title: titleOf(target, at, targets),
      further: targets.count - at - 1,
      signal: this.#stop.signal,
      apply: async (which, hostExecuted = []) => {
        const request = { which, digest: seen.digest, approval: USER_APPROVED, hostExecuted };
        const applied = await this.#changesets.apply(seen.id, request);
        done.push(...applied.changes);
        left = applied.left;
      },
      discard: async () => {
        await this.#changesets.discard(seen.id, { digest: seen.digest });
        left = 0;
        isDiscarded = true;
      },
    });
    if (end === "rest") this.#agreed = this.#shown;
    if (end === "stop") {
      // What was not asked about has no outcome.
      if (done.length > 0) this.#tally.add({ id: seen.id, changes: done, left }, target);
      this.#stop.cancel();
      return null;
    }
    const settled = new Set(done.map(({ index }) => index));
    return this.#decided({ id: seen.id, changes: [...done, ...leftOf(seen, settled, isDiscarded)], left }, target);
  }

  /** Of all that may be agreed to at once, as it is before the first question: nothing that comes later is meant. */
  async #digests(targets: Targets): Promise<ReadonlyMap<string, string>> {
    const digests = new Map<string, string>();
    if (targets.count < 2) return digests;
    for await (const { id } of targets.each()) digests.set(id, await this.#changesets.digest(id).catch(() => ""));
    return digests;
  }

  #decided(done: AppliedChangeset, target: ChangesetTarget): number {
    this.decided += 1;
    this.#tally.add(done, target);
    return done.changes.every(({ outcome }) => outcome === "applied") ? 0 : 1;
  }
}

/** What was not applied, and why. */
function leftOf({ parts, unfit }: ForeseenChangeset, done: ReadonlySet<number>, isDiscarded: boolean): AppliedChange[] {
  const skipped = parts.flatMap(({ indexes, path, kind, type, ruled }): AppliedChange[] => {
    const [index = -1] = indexes;
    if (done.has(index)) return [];
    if (isDiscarded) return [{ index, path, kind, type, outcome: "denied", reason: "it was discarded" }];
    return ruled?.outcome === "denied"
      ? [{ index, path, kind, type, outcome: "denied", reason: ruled.reason }]
      : [{ index, path, kind, type, outcome: "held", reason: NOT_CHOSEN }];
  });
  return [...skipped, ...unfit];
}

function titleOf({ id, item }: ChangesetTarget, at: number, { count }: Targets): string {
  const what = item === undefined ? "Changeset" : "Item";
  const name = item === undefined ? id : printableLine(item.key, 60);
  return count === 1 ? `${what} ${name}` : `${what} ${at + 1} of ${count}, ${name}`;
}

function stoppedText(decided: number, { count, fleet }: Targets): string {
  const others = count - decided;
  if (others <= 0) return "corral: Stopped after the last changeset.";
  const what = others === 1 ? "changeset was" : "changesets were";
  const where = fleet === null ? "corral changes ls" : `corral changes ls --fleet ${fleet}`;
  return `corral: Stopped: ${others} of ${count} ${what} not applied. See \`${where}\`.`;
}

function pathFrom(raw: string): VirtualPath {
  const parsed = parseVirtualPath(raw);
  if (!parsed.ok) throw new UsageError(`--only ${printableLine(raw, 80)}: ${parsed.reason}`);
  return parsed.path;
}
