import { FileTooLargeError, NotFoundError } from "../sandbox/errors.ts";
import { below, covers, joinVirtual, type VirtualPath } from "../sandbox/virtual-path.ts";
import type { CheckedAccess } from "./checked-access.ts";
import { editedContent } from "./edit/edited-content.ts";
import {
  contentBytes,
  type Effect,
  type Files,
  type ForeseenOperation,
  holdsMount,
  type Intended,
  type Looked,
  type LookOptions,
  type Place,
  type Version,
  whyNotRegular,
} from "./model/files.ts";
import {
  type FileOperation,
  HOLDS_MOUNT,
  IS_MOUNT,
  intoItself,
  NOT_EMPTY,
  SAME_PLACE,
  TAKEN,
  unfit,
} from "./model/refusals.ts";

export interface Foreseeing {
  readonly files: Pick<Files, "look" | "maxWriteBytes">;
  readonly access: CheckedAccess;
  /** The paths of all mounts. */
  readonly mounts: readonly VirtualPath[];
  readonly signal?: AbortSignal | undefined;
}

type Of<Operation extends Intended["operation"]> = Extract<Intended, { operation: Operation }>;
type Seen = Omit<ForeseenOperation, "places"> & Partial<Pick<ForeseenOperation, "places">>;

/**
 * What an operation would do, or the refusal that it would meet: a person is asked only about what can be done. The
 * operation itself checks everything again, because the answer may take minutes.
 */
export async function foresee(intended: Intended, around: Foreseeing): Promise<ForeseenOperation> {
  const seen = await seenOf(intended, around);
  refuseTooMuch(seen.effects, around.files.maxWriteBytes);
  return { places: [], ...seen };
}

function seenOf(intended: Intended, around: Foreseeing): Promise<Seen> {
  switch (intended.operation) {
    case "write":
      return writing(intended, around);
    case "append":
      return appending(intended, around);
    case "edit":
      return editing(intended, around);
    case "delete":
      return deleting(intended, around);
    case "move":
    case "copy":
      return transferring(intended, around);
  }
}

async function writing({ path, content, overwrite = true }: Of<"write">, around: Foreseeing): Promise<Seen> {
  const bytes = contentBytes(content);
  const place = around.access.toWrite(path, bytes.length);
  const there = await targetAt("write", place, overwrite, around);
  return writes(place, there, bytes);
}

async function appending({ path, content }: Of<"append">, around: Foreseeing): Promise<Seen> {
  const bytes = contentBytes(content);
  const place = around.access.toWrite(path, bytes.length);
  const there = await targetAt("append", place, true, around);
  const size = (there?.size ?? 0) + bytes.length;
  around.access.checks.write?.(place.path, size);
  const before = there === null ? Buffer.alloc(0) : there.content;
  const after = before === null ? null : Buffer.concat([before, bytes]);
  if (after !== null) return writes(place, there, after);
  const mode = there?.mode ?? null;
  return effectOn(place, there, { bytes: size, mode, content: null });
}

async function editing({ path, edits }: Of<"edit">, around: Foreseeing): Promise<Seen> {
  const place = around.access.toWrite(path, 0);
  const there = await lookedAt("edit", place, "refuse", around);
  refuseIrregular("edit", place, there);
  around.access.checks.read?.(there.path, there.size);
  const content = there.content ?? Buffer.alloc(0);
  const source = {
    size: there.size,
    read: async (position: number, length: number) => content.subarray(position, position + length),
    changed: () => false,
  };
  const { bytes, places } = await editedContent(source, place.path, edits);
  around.access.checks.write?.(there.path, bytes.length);
  return { ...writes(place, there, bytes), places };
}

async function deleting({ path, recursive = false }: Of<"delete">, around: Foreseeing): Promise<Seen> {
  const place = around.access.toDelete(path);
  refuseMount("delete", place);
  const there = await lookedAt("delete", place, "refuse", around);
  const effects = removalOf("delete", there, place, around);
  if (there.type === "directory" && !recursive && effects.length > 1) throw unfit("delete", place.path, NOT_EMPTY);
  return { effects, expected: there.type === "directory" ? {} : { from: there.version } };
}

async function transferring({ operation, path, to, overwrite }: Of<"move" | "copy">, around: Foreseeing) {
  const { access } = around;
  const source = operation === "move" ? access.toDelete(path) : access.toCopy(path);
  const target = access.toFolder(to);
  if (operation === "move" && source.path === target.path) throw unfit(operation, source.path, SAME_PLACE);
  if (operation === "move") refuseMount(operation, source);
  const from = await lookedAt(operation, source, operation === "move" ? "refuse" : "follow", around);
  const isFolder = from.type === "directory";
  if (isFolder) {
    if (covers(source.path, target.path) || covers(from.path, target.path))
      throw unfit(operation, source.path, intoItself(target.path));
    refuseHolding(operation, source, from.path, around);
  } else refuseIrregular(operation, source, from);
  const there = await targetAt(operation, target, !isFolder && (overwrite ?? false), around);
  if (isFolder && target.parts.length > 0) refuseHolding(operation, target, target.path, around);
  const removed = operation === "move" ? removalOf(operation, from, source, around) : [];
  const made = isFolder
    ? folderEffects(operation, from, source, target.path, around)
    : [fileEffect(operation, from, source, target, there, around)];
  const expected = { ...(isFolder ? {} : { from: from.version }), to: there?.version ?? null };
  return { effects: [...removed, ...made], expected };
}

function fileEffect(
  operation: "move" | "copy",
  from: Looked,
  source: Place,
  target: Place,
  there: Looked | null,
  { access }: Foreseeing,
): Effect {
  access.checks.read?.(from.path, from.size);
  access.checks.write?.(target.path, from.size);
  // A rename keeps the bits of the file; content that replaces a file gets the bits of that file.
  const isRename = operation === "move" && source.mount === target.mount;
  const mode = there === null || isRename ? from.mode : there.mode;
  const after = { bytes: from.size, mode, content: from.content };
  return { kind: "write", path: target.path, before: versionIn(there), after };
}

function folderEffects(
  operation: "move" | "copy",
  from: Looked,
  source: Place,
  to: VirtualPath,
  { access }: Foreseeing,
): Effect[] {
  const effects = (from.entries ?? []).map(({ path, type, size, mode }): Effect => {
    const target = joinVirtual(to, below(from.path, path) ?? "");
    if (type === "directory") return { kind: "folder", path: target };
    if (type === "file") {
      access.checks.read?.(path, size);
      access.checks.write?.(target, size);
    } else if (operation === "copy") {
      const what = type === "link" ? "a symbolic link" : "not a regular file";
      const reason = `it contains '${path}', which is ${what}. Delete that, or copy single files.`;
      throw unfit(operation, source.path, reason);
    }
    return { kind: "write", path: target, before: null, after: { bytes: size, mode, content: null } };
  });
  return [{ kind: "folder", path: to }, ...effects];
}

/** Everything that goes, each entry before the directory that holds it. */
function removalOf(operation: "delete" | "move", from: Looked, place: Place, around: Foreseeing): Effect[] {
  if (from.type === "directory") refuseHolding(operation, place, from.path, around);
  const all = [from, ...(from.entries ?? [])];
  // Size 0: a deletion never exceeds a size limit.
  for (const { path, type } of all) if (type === "file") around.access.checks.write?.(path, 0);
  return all.toReversed().map(({ path, type }): Effect => ({ kind: "delete", path, type }));
}

function writes(place: Place, there: Looked | null, content: Uint8Array): Seen {
  return effectOn(place, there, { bytes: content.length, mode: there?.mode ?? null, content });
}

function effectOn({ path }: Place, there: Looked | null, after: Version): Seen {
  const effect: Effect = { kind: "write", path, before: versionIn(there), after };
  return { effects: [effect], expected: { to: there?.version ?? null } };
}

function versionIn(there: Looked | null): Version | null {
  return there === null ? null : { bytes: there.size, mode: there.mode, content: there.content };
}

/** The regular file that would be written or replaced; null if the name is free. */
async function targetAt(
  operation: FileOperation,
  place: Place,
  overwrite: boolean,
  around: Foreseeing,
): Promise<Looked | null> {
  const there = await lookedAt(operation, place, "refuse", around).catch((error: unknown) => {
    if (error instanceof NotFoundError) return null;
    throw error;
  });
  if (there === null) return null;
  refuseIrregular(operation, place, there);
  if (place.parts.length === 0 && (operation === "move" || operation === "copy")) refuseMount(operation, place);
  if (!overwrite) throw unfit(operation, place.path, TAKEN);
  return there;
}

async function lookedAt(
  operation: FileOperation,
  place: Place,
  links: LookOptions["links"],
  { files, signal }: Foreseeing,
): Promise<Looked> {
  return await files.look(place, { operation, links, inside: true, signal });
}

function refuseIrregular(operation: FileOperation, place: Place, { type }: Pick<Looked, "type">): void {
  if (type === "directory" && place.parts.length === 0) refuseMount(operation, place);
  const refusal = whyNotRegular(type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
}

function refuseMount(operation: FileOperation, { path, parts }: Place): void {
  if (parts.length === 0) throw unfit(operation, path, IS_MOUNT);
}

/** `path`: the place itself, or where a link led. */
function refuseHolding(operation: FileOperation, place: Place, path: VirtualPath, { mounts }: Foreseeing): void {
  const inner = mounts.filter((mount) => mount !== place.mount && covers(place.mount, mount));
  if (holdsMount(inner, path)) throw unfit(operation, place.path, HOLDS_MOUNT);
}

function refuseTooMuch(effects: readonly Effect[], maxBytes: number | undefined): void {
  if (maxBytes === undefined) return;
  let all = 0;
  for (const effect of effects) {
    if (effect.kind !== "write") continue;
    all += effect.after.bytes;
    if (all > maxBytes) throw new FileTooLargeError(effect.path, all, maxBytes);
  }
}
