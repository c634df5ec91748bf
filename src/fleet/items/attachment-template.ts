import { posix } from "node:path";
import { parseTemplate, type TemplatePart } from "../../declarations/terms/template-text.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import type { ItemRequest, ManifestItem } from "../model/item.ts";
import type { Outcome } from "./faults.ts";
import { textOfParts } from "./item-fields.ts";
import { beginsWithField, fillPath, type PathTemplate, parsePathTemplate, shownValue } from "./path-template.ts";

/** The base and the allowed directories of attachment paths. Host or virtual directories, absolute and normalised. */
export interface AttachmentPlaces {
  /** The base for templates that start with a field: the directory of the manifest or pattern. */
  readonly manifestDir: string;
  /** The base for templates that start with literal text. */
  readonly templateDir: string;
  /** Directories, in addition to `manifestDir`, in which a field may name files by absolute paths. */
  readonly within: readonly string[];
}

/** `{path}` or `{path}=in.pdf`: the file, and its name under `/attachments`. */
export interface AttachmentTemplate {
  readonly path: PathTemplate;
  /** Null: the file's own name. */
  readonly name: readonly TemplatePart[] | null;
}

type Attachment = ItemRequest["attachments"][number];

export function parseAttachmentTemplate(raw: string): Outcome<AttachmentTemplate> {
  const named = splitName(raw);
  const path = parsePathTemplate(named?.path ?? raw);
  return path.ok ? { ok: true, value: { path: path.value, name: named?.name ?? null } } : path;
}

/** The attachment of one item. No value can lead out of the allowed directories. */
export function fillAttachment(
  { path: template, name: nameTemplate }: AttachmentTemplate,
  item: ManifestItem,
  places: AttachmentPlaces,
): Outcome<Attachment> {
  const filled = fillPath(template, item);
  if (!filled.ok) return filled;
  const path = posix.resolve(beginsWithField(template) ? places.manifestDir : places.templateDir, filled.value);
  if (!template.absolute && filled.value.startsWith("/") && !isWithin(path, places)) {
    const allowed = [places.manifestDir, ...places.within].join(", ");
    return { ok: false, fault: `${shownValue(path)} is outside the allowed directories: ${allowed}` };
  }
  const name: Outcome<string> =
    nameTemplate === null ? { ok: true, value: posix.basename(path) } : textOfParts(item, nameTemplate);
  if (!name.ok) return name;
  if (!isAttachmentName(name.value) || /^-|[\p{Cc}\p{Cs}]/u.test(name.value))
    return { ok: false, fault: `${shownValue(name.value)} is not a valid attachment name; set another with PATH=NAME` };
  return { ok: true, value: { path, name: name.value } };
}

/** The name follows the last `=`, unless that `=` is part of a field or a path. */
function splitName(raw: string): { readonly path: string; readonly name: readonly TemplatePart[] } | null {
  const equals = raw.lastIndexOf("=");
  const [path, rest] = [raw.slice(0, equals), raw.slice(equals + 1)];
  if (equals < 1 || rest === "" || rest.includes("/") || !parseTemplate(path).ok) return null;
  const name = parseTemplate(rest);
  return name.ok ? { path, name: name.parts } : null;
}

function isWithin(path: string, { manifestDir, within }: AttachmentPlaces): boolean {
  return [manifestDir, ...within].some((folder) => path.startsWith(folder.endsWith("/") ? folder : `${folder}/`));
}
