import { posix } from "node:path";
import { parseTemplate, type TemplatePart } from "../../declarations/terms/template-text.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import type { ItemRequest, ManifestItem } from "../model/item.ts";
import type { Outcome } from "./faults.ts";
import { textOfParts } from "./item-fields.ts";
import { beginsWithField, fillPath, type PathTemplate, parsePathTemplate, shownValue } from "./path-template.ts";

/** Where the paths of attachments begin and may lead. Absolute folders, normalised. */
export interface AttachmentPlaces {
  /** Where a path begins that begins with a field: the manifest's folder, or the pattern's. */
  readonly manifestDir: string;
  /** Where a path begins that the template itself begins. */
  readonly templateDir: string;
  /** Besides `manifestDir`, where a field may name files by absolute paths: host folders, or virtual ones. */
  readonly within: readonly string[];
}

/** `{path}`, or `{path}=in.pdf`: which file, and what it is called under `/attachments`. */
export interface AttachmentTemplate {
  readonly path: PathTemplate;
  /** Null: as the file is called. */
  readonly name: readonly TemplatePart[] | null;
}

type Attachment = ItemRequest["attachments"][number];

export function parseAttachmentTemplate(raw: string): Outcome<AttachmentTemplate> {
  const named = splitName(raw);
  const path = parsePathTemplate(named?.path ?? raw);
  return path.ok ? { ok: true, value: { path: path.value, name: named?.name ?? null } } : path;
}

/** One file for one item: no value leads out of the folders that are allowed. */
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
    return { ok: false, fault: `${shownValue(path)} lies outside of what is allowed: ${allowed}` };
  }
  const name: Outcome<string> =
    nameTemplate === null ? { ok: true, value: posix.basename(path) } : textOfParts(item, nameTemplate);
  if (!name.ok) return name;
  if (!isAttachmentName(name.value) || /^-|[\p{Cc}\p{Cs}]/u.test(name.value))
    return { ok: false, fault: `${shownValue(name.value)} cannot be the name of an attachment; write PATH=NAME` };
  return { ok: true, value: { path, name: name.value } };
}

/** The name stands after the last `=`, where that is no part of a field or a path. */
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
