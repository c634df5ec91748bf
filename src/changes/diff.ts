import fs from "node:fs";
import { isText, textDiff } from "../files/diff/text-diff.ts";
import { GIT_REPOSITORY, whyHostExecuted } from "../sandbox/host-executed.ts";
import { visibleLine, visibleName } from "../text/visible.ts";
import { type ChangeVerdict, impossible, isVerdict, refused } from "./apply/fitness.ts";
import { OpenMounts, openContent } from "./apply/open-mounts.ts";
import { commitTexts, versionsOf, whyNot } from "./commits.ts";
import { type Change, type Changeset, placeKey, placesAbove } from "./model/changeset.ts";

/** A regular file or a directory that a changeset brings. */
export interface ChangedFile extends Pick<Change, "index" | "path"> {
  readonly type: "file" | "directory";
  /** In bytes; 0 for a directory. */
  readonly bytes: number;
  /** Permission bits. */
  readonly mode: number;
  /** Exactly `bytes` bytes, or it fails. It must be read before the next file is asked for. */
  readonly content: AsyncIterable<Buffer>;
}

const PIECE_BYTES = 256 * 1024;

/**
 * Files and directories that a changeset writes, in its order. Links are left out: who unpacks them would follow them. So is
 * what must not be applied, and content that was changed after it had been checked.
 */
export async function* changedFiles(changeset: Changeset): AsyncGenerator<ChangedFile, void, undefined> {
  using mounts = new OpenMounts(changeset);
  for (const change of changeset.changes) {
    const { index, path, kind, type, next, refusal } = change;
    if (kind === "delete" || type === "link" || next === null || refusal !== null) continue;
    const mode = next.mode & 0o777;
    if (type === "directory") {
      yield { index, path, type, bytes: 0, mode, content: pieces(null, 0) };
      continue;
    }
    const content = openContent(change, mounts);
    if (isVerdict(content)) continue;
    using _ = content;
    using file = content.descriptor.reopen(fs.constants.O_RDONLY);
    yield { index, path, type, bytes: next.size, mode, content: pieces(file.fd, next.size) };
  }
}

async function* pieces(fd: number | null, bytes: number): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; fd !== null && at < bytes; ) {
    const piece = Buffer.alloc(Math.min(PIECE_BYTES, bytes - at));
    const length = fs.readSync(fd, piece, 0, piece.length, at);
    if (length === 0) throw new Error("the file became shorter while it was read");
    at += length;
    yield piece.subarray(0, length);
  }
}

export const DIFF_LIMITS = {
  /** If either version of a file is larger, its content is not shown. */
  fileBytes: 256 * 1024,
  /** Of everything shown. Later changes get one line each. */
  totalBytes: 1024 ** 2,
  /** Of everything that is read for comparison. */
  readBytes: 8 * 1024 ** 2,
  /** Changes beyond this number are only counted. */
  changes: 5000,
};
type DiffLimits = Readonly<typeof DIFF_LIMITS>;

/** One change, for people. Each line is safe to print. */
export interface ChangeDiff {
  readonly change: Change;
  /** Why it cannot be applied now; null if it can. */
  readonly verdict: ChangeVerdict | null;
  readonly lines: readonly string[];
}

/** A whole changeset as a unified diff, for people. Each line is safe to print. */
export async function changesetDiff(changeset: Changeset, limits: DiffLimits = DIFF_LIMITS): Promise<string> {
  return (await shownChangeset(changeset, limits)).diff;
}

/**
 * The same, and which changes cannot be applied now, by their index: the diff shows only their names and the reasons. `whole`: what it
 * is a part of, since another change may make room for one of these.
 */
export async function shownChangeset(
  changeset: Changeset,
  limits: DiffLimits = DIFF_LIMITS,
  whole = changeset,
): Promise<{ readonly diff: string; readonly unfit: ReadonlyMap<number, ChangeVerdict> }> {
  const lines = commitTexts(changeset, whole);
  const unfit = new Map<number, ChangeVerdict>();
  let shown = 0;
  const apart = changesApart(changeset);
  for await (const diff of changeDiffs(changeset, limits, whole)) {
    const executed = apart.get(diff.change.index);
    if (executed !== undefined) lines.push(`${executed}: ${visibleName(diff.change.path)}`);
    for (const line of diff.lines) lines.push(line);
    if (diff.verdict !== null) unfit.set(diff.change.index, diff.verdict);
    shown += 1;
  }
  const more = changeset.changes.length - shown;
  if (more > 0) lines.push(`${more} more changes are not shown`);
  return { diff: lines.join("\n"), unfit };
}

/** Compares what a run left with what the directory has now. Stops at the limit of changes. */
export async function* changeDiffs(
  changeset: Changeset,
  limits: DiffLimits = DIFF_LIMITS,
  whole = changeset,
): AsyncGenerator<ChangeDiff> {
  using mounts = new OpenMounts(changeset);
  /** The places that other changes free or make, so that these can use them. */
  const keysOf = (some: readonly Change[]) => new Set(some.map(({ mount, parts }) => placeKey(mount, parts)));
  const freed = keysOf(whole.changes.filter(({ kind }) => kind === "delete"));
  const coming: Coming = { freed, any: keysOf(whole.changes.filter(makesRoom)) };
  const left = { bytes: limits.totalBytes, read: limits.readBytes };
  for (const change of changeset.changes.slice(0, limits.changes)) {
    const verdict = verdictOn(change, mounts, coming);
    const diff = verdict === null ? diffOf(change, mounts, limits, left) : marked(change, verdict);
    left.bytes -= bytesOf(diff.lines);
    yield diff;
  }
}

function makesRoom({ kind, type }: Change): boolean {
  return kind === "delete" || (kind === "create" && type === "directory");
}

interface Coming {
  readonly freed: ReadonlySet<string>;
  readonly any: ReadonlySet<string>;
}

interface Left {
  bytes: number;
  read: number;
}

function verdictOn(change: Change, mounts: OpenMounts, coming: Coming): ChangeVerdict | null {
  const { refusal, kind, mount, parts } = change;
  if (refusal !== null) return refused(refusal);
  const comes = coming.freed.has(placeKey(mount, parts)) || coming.any.has(placeKey(mount, parts.slice(0, -1)));
  return kind === "create" && comes ? null : whyNot(change, mounts);
}

function diffOf(change: Change, mounts: OpenMounts, limits: DiffLimits, left: Left): ChangeDiff {
  const { kind, type, next, base } = change;
  if (kind === "delete" || type !== "file" || next === null) return shown(change, [heading(change)]);
  const sizes = `${sizeOf(base)}${next.size} bytes`;
  const size = Math.max(next.size, base?.size ?? 0);
  if (size > limits.fileBytes) return shown(change, [`${heading(change)} (${sizes}; too large to show)`]);
  if (left.bytes <= 0 || left.read < size) return shown(change, [`${heading(change)} (${sizes}; not shown)`]);
  left.read -= size;
  const versions = readVersions(change, mounts);
  if (isVerdict(versions)) return marked(change, versions);
  const { before, after } = versions;
  if (!isText(before) || !isText(after)) return shown(change, [`${heading(change)} (binary, ${sizes})`]);
  const hunks = textDiff(before, after);
  if (hunks === null) return shown(change, [`${heading(change)} (${sizes}; changed too much to show)`]);
  if (bytesOf(hunks) > left.bytes) return shown(change, [`${heading(change)} (${sizes}; not shown)`]);
  const name = visibleName(change.path);
  const title = hunks.length === 0 ? [] : [`--- ${kind === "create" ? "/dev/null" : name}`, `+++ ${name}`];
  return shown(change, [...(title.length === 0 || modeOf(change) !== "" ? [heading(change)] : []), ...title, ...hunks]);
}

function readVersions(change: Change, mounts: OpenMounts): ReturnType<typeof versionsOf> {
  try {
    return versionsOf(change, mounts);
  } catch (error) {
    return impossible(error);
  }
}

/** The change in one line: `modify /work/run.sh, mode 644 -> 755`. */
function heading(change: Change): string {
  const { kind, type, path, linkText } = change;
  const what = type === "file" ? "" : `${type} `;
  const leads = linkText === undefined ? "" : ` -> ${visibleName(linkText)}`;
  return `${kind} ${what}${visibleName(path)}${leads}${modeOf(change)}`;
}

/** The mode, if permission bits change or a new file is executable. */
function modeOf({ kind, type, base, next }: Change): string {
  if (next === null || type === "link") return "";
  const now = (next.mode & 0o777).toString(8);
  if (kind === "create") return type === "file" && (next.mode & 0o111) !== 0 ? `, mode ${now}` : "";
  const before = ((base?.mode ?? 0) & 0o777).toString(8);
  return before === now ? "" : `, mode ${before} -> ${now}`;
}

function marked(change: Change, verdict: ChangeVerdict): ChangeDiff {
  const line = `${verdict.outcome}: ${heading(change)}: ${visibleLine(verdict.reason ?? "")}`;
  return { change, verdict, lines: [line] };
}

function shown(change: Change, lines: readonly string[]): ChangeDiff {
  return { change, verdict: null, lines };
}

function sizeOf(base: Change["base"]): string {
  return base === null ? "" : `${base.size} bytes -> `;
}

function bytesOf(lines: readonly string[]): number {
  return lines.reduce((bytes, line) => bytes + Buffer.byteLength(line) + 1, 0);
}

/**
 * The changes that no general yes covers, with the reason, by their indexes: what programs of the host would execute, and the deletion of
 * a directory that holds such a thing. Deletions count like any change: without a setting, something else is run.
 */
export function changesApart({
  mounts,
  changes,
  hostExecuted,
}: Pick<Changeset, "mounts" | "changes" | "hostExecuted">): ReadonlyMap<number, string> {
  const apart = new Map<number, string>();
  if (hostExecuted === "allow") return apart;
  const emptied = new Map<string, string>();
  for (const change of changes) {
    const { index, mount, parts, type, kind } = change;
    const target = mounts[mount]?.target ?? "";
    const why = whyHostExecuted(`${target}/${parts.join("/")}`, type) ?? whyInBare(target, change);
    if (why === null) continue;
    apart.set(index, why);
    if (kind === "delete") for (const place of placesAbove(change)) emptied.set(place, why);
  }
  for (const { index, mount, parts, type, kind } of emptied.size === 0 ? [] : changes) {
    const why = kind === "delete" && type === "directory" ? emptied.get(placeKey(mount, parts)) : undefined;
    if (why !== undefined && !apart.has(index)) apart.set(index, why);
  }
  return apart;
}

/** In a bare repository any directory can be git's own: what makes it one is the file HEAD, which is asked about where it is new. */
function whyInBare(target: string, { parts, type }: Change): string | null {
  for (let at = 0; at < parts.length; at += 1) {
    const why = whyHostExecuted(`/x.git/${parts.slice(at).join("/")}`, type);
    // HEAD itself is judged by its real place: in `.git`, where each commit changes one, it makes no repository.
    if (why === null || why === GIT_REPOSITORY) continue;
    const head = [target, ...parts.slice(0, at), "HEAD"].join("/");
    if (fs.lstatSync(head, { throwIfNoEntry: false }) !== undefined) return why;
  }
  return null;
}
