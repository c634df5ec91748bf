import { parseTemplate, type TemplatePart } from "../../declarations/terms/sandbox-form.ts";
import { covers, MAX_COMPONENT_BYTES, MAX_PATH_BYTES, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { clipped, printable } from "../../text/visible.ts";
import type { ManifestItem } from "../model/item.ts";
import { type StepResult, textOfField } from "./item-fields.ts";

/** A path with fields: one list of parts for each name between slashes. */
export interface PathTemplate {
  readonly absolute: boolean;
  readonly names: readonly (readonly TemplatePart[])[];
  /** True if the whole template is one field. */
  readonly whole: boolean;
}

/** Fields that are relative paths and may contain more than one name. */
const PATH_FIELDS = new Set(["dir", "relative", "path"]);

export function parsePathTemplate(raw: string): StepResult<PathTemplate> {
  const parsed = parseTemplate(raw);
  if (!parsed.ok) return parsed;
  const names: TemplatePart[][] = [[]];
  for (const part of parsed.parts) {
    if ("field" in part) names.at(-1)?.push(part);
    else {
      const [first = "", ...further] = part.text.split("/");
      if (first !== "") names.at(-1)?.push({ text: first });
      names.push(...further.map((text) => (text === "" ? [] : [{ text }])));
    }
  }
  while (names.length > 1 && isNothing(names.at(-1) ?? [])) names.pop();
  const firstField = names.findIndex(hasField);
  if (firstField >= 0 && names.slice(firstField).some((name) => !hasField(name) && literalOf(name) === ".."))
    return { ok: false, fault: "has `..` after a field, so its target is unknown; remove the `..`" };
  const whole = parsed.parts.length === 1 && hasField(parsed.parts);
  return { ok: true, value: { absolute: raw.startsWith("/"), names, whole } };
}

/** True if the path starts with a field. */
export function beginsWithField({ absolute, names }: PathTemplate): boolean {
  return !absolute && hasField(names[0] ?? []);
}

/**
 * The path for one item. Values give names and, for path fields, directories below. They can never lead above or beside the
 * literal part of the template, nor to that directory itself. Only a template that is one field may become absolute.
 * `isHost`: it names a file that is there, and no worker sees the name.
 */
export function fillPath(
  { absolute, names, whole }: PathTemplate,
  item: ManifestItem,
  isHost = false,
): StepResult<string> {
  const filled: string[] = [];
  let rooted = absolute;
  for (const [index, parts] of names.entries()) {
    if (!hasField(parts)) {
      filled.push(literalOf(parts));
      continue;
    }
    const name = fillName(parts, item, whole);
    if (!name.ok) return name;
    const { text } = name.value;
    rooted ||= text.startsWith("/");
    const pieces = text.split("/").filter((piece) => piece !== "" && !(piece === "." && name.value.several));
    const fault = pieces.map((piece) => nameFault(piece, isHost)).find((each) => each !== null);
    if (fault !== undefined) return { ok: false, fault: `${aboutFields(parts, item)} ${fault}` };
    // A file at the top level has an empty `dir`, which just omits a name.
    if (pieces.length === 0 && (index === names.length - 1 || !parts.every(isDir)))
      return { ok: false, fault: `${aboutFields(parts, item)} gives no name; the path would be the directory itself` };
    filled.push(...pieces);
  }
  const value = `${rooted ? "/" : ""}${filled.filter((name) => name !== "").join("/")}`;
  if (Buffer.byteLength(value) > MAX_PATH_BYTES)
    return { ok: false, fault: `it is longer than ${MAX_PATH_BYTES} bytes` };
  return { ok: true, value };
}

interface FilledName {
  readonly text: string;
  /** True if it may contain more than one name. */
  readonly several: boolean;
}

/** The text between two slashes of the template. It starts with a slash only if the whole template is one field. */
function fillName(parts: readonly TemplatePart[], item: ManifestItem, whole: boolean): StepResult<FilledName> {
  let text = "";
  let several = whole;
  for (const part of parts) {
    if ("text" in part) {
      text += part.text;
      continue;
    }
    const value = textOfField(item, part.field);
    if (!value.ok) return value;
    const isPath = PATH_FIELDS.has(part.field);
    if (value.value.startsWith("/") && !whole)
      return {
        ok: false,
        fault: `${aboutFields([part], item)} is absolute; use \`{relative}\` or \`{name}\``,
        // The path of a file that matched a pattern always is.
        ofTemplate: item.file !== undefined,
      };
    if (value.value.includes("/") && !whole && !isPath)
      return {
        ok: false,
        fault: `${aboutFields([part], item)} contains a \`/\`; in a path only dir, relative and path may contain one`,
      };
    several ||= isPath;
    text += value.value;
  }
  return { ok: true, value: { text, several } };
}

/** The fields of a name and their values, for messages. */
function aboutFields(parts: readonly TemplatePart[], item: ManifestItem): string {
  const fields = parts.flatMap((part) => {
    const value = "field" in part ? textOfField(item, part.field) : null;
    return "field" in part && value?.ok ? [`the field \`${part.field}\` (${shownValue(value.value)})`] : [];
  });
  return fields.join(" with ");
}

/** Why a filled name is not allowed in a path; null if it is. */
function nameFault(name: string, isHost: boolean): string | null {
  if (name === "." || name === "..") return `gives the name \`${name}\`, which leads to another directory`;
  if (isHost ? name.includes("\0") : /\p{Cc}/u.test(name))
    return "contains a control character, which is not allowed in a path";
  if (/\p{Cs}/u.test(name)) return "is not valid Unicode";
  if (!isHost && name.startsWith("-")) return "gives a name that starts with `-`, which programs read as an option";
  return Buffer.byteLength(name) > MAX_COMPONENT_BYTES ? `gives a name longer than ${MAX_COMPONENT_BYTES} bytes` : null;
}

function hasField(parts: readonly TemplatePart[]): boolean {
  return parts.some((part) => "field" in part);
}

/** True for a trailing slash or a dot. */
function isNothing(parts: readonly TemplatePart[]): boolean {
  return !hasField(parts) && ["", "."].includes(literalOf(parts));
}

function isDir(part: TemplatePart): boolean {
  return "field" in part && part.field === "dir";
}

function literalOf(parts: readonly TemplatePart[]): string {
  return parts.map((part) => ("text" in part ? part.text : "")).join("");
}

const MAX_SHOWN_CHARS = 80;

/** A value in a message: shortened, quoted and escaped, so that a hostile one cannot control the terminal. */
export function shownValue(value: string): string {
  return printable(JSON.stringify(clipped(value, MAX_SHOWN_CHARS)), "", "piece");
}

/** The names before the first one with a field. */
export function literalStart({ names }: PathTemplate): string {
  const first = names.findIndex(hasField);
  return `/${names
    .slice(0, first < 0 ? names.length : first)
    .map(literalOf)
    .filter((name) => name !== "")
    .join("/")}`;
}

/** A path that an item may write. */
export interface OutputPlace {
  /** A canonical virtual path. */
  readonly path: string;
  readonly key: string;
}

/** Two items with overlapping outputs. */
interface Collision {
  /** The inner of the two paths, or the common one. */
  readonly path: string;
  readonly key: string;
  readonly with: OutputPlace;
}

export interface Collisions {
  /** How many paths equal another item's path or are below one. */
  readonly count: number;
  /** The first of them. */
  readonly first: readonly Collision[];
}

const MAX_LISTED = 20;

/**
 * Every path that equals or is below a path of another item; null if there is none. The input is sorted by components, so
 * that paths below a path follow it directly (`/a`, `/a/c`, `/a-b`). Only the ancestors of the current path are in memory.
 */
export async function collisionsIn(sorted: AsyncIterable<OutputPlace>): Promise<Collisions | null> {
  const ancestors: Ancestor[] = [];
  const first: Collision[] = [];
  let count = 0;
  for await (const place of sorted) {
    while (!covers((ancestors.at(-1)?.path ?? "/") as VirtualPath, place.path as VirtualPath)) ancestors.pop();
    const other = otherThan(place.key, ancestors);
    if (other !== null) {
      count += 1;
      if (first.length < MAX_LISTED) first.push({ path: place.path, key: place.key, with: other });
    }
    note(place, ancestors);
  }
  return count === 0 ? null : { count, first };
}

/** For people: which items' outputs collide. */
export function describeCollisions({ count, first }: Collisions): string {
  const lines = first.map(({ path, key, with: other }) =>
    path === other.path
      ? `${other.key} and ${key} would both write to ${path}`
      : `${path} of ${key} is below ${other.path} of ${other.key}`,
  );
  const more = count > first.length ? [`and ${count - first.length} more`] : [];
  return [...lines, ...more].join("\n");
}

/** One path and the items that may write it. Two items are enough to report a collision. */
interface Ancestor {
  readonly path: string;
  readonly keys: string[];
}

function otherThan(key: string, ancestors: readonly Ancestor[]): OutputPlace | null {
  for (const { path, keys } of ancestors.toReversed()) {
    const other = keys.find((each) => each !== key);
    if (other !== undefined) return { path, key: other };
  }
  return null;
}

function note({ path, key }: OutputPlace, ancestors: Ancestor[]): void {
  const last = ancestors.at(-1);
  if (last?.path !== path) ancestors.push({ path, keys: [key] });
  else if (last.keys.length < 2 && !last.keys.includes(key)) last.keys.push(key);
}
