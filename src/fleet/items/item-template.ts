import { posix } from "node:path";
import { parseTemplate, type TemplatePart } from "../../declarations/terms/sandbox-form.ts";
import { kindOf } from "../../declarations/yaml/shape.ts";
import { MAX_JSON_DEPTH, parseJson } from "../../json/parse-json.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import { checkRead, checkWrite } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, type PathContext, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ItemRequest, ItemTemplate, ManifestItem } from "../model/item.ts";
import {
  Faults,
  fieldOf,
  ItemRefusal,
  type StepResult,
  TemplateError,
  type TemplateProblem,
  textOfField,
  textOfParts,
} from "./item-fields.ts";
import {
  beginsWithField,
  fillPath,
  literalStart,
  type PathTemplate,
  parsePathTemplate,
  shownValue,
} from "./path-template.ts";

/** A first name with a field must not select a mount or a home directory: `text:{stem}` is refused. */
function parseVirtualTemplate(raw: string): StepResult<PathTemplate> {
  const parsed = parsePathTemplate(raw);
  if (!parsed.ok || !beginsWithField(parsed.value)) return parsed;
  const [first = []] = parsed.value.names;
  return first.some((part) => "text" in part && SPECIAL.test(part.text)) ? { ok: false, fault: BEGIN } : parsed;
}

/** The virtual path for one item, in canonical form. */
export function fillVirtualPath(
  template: PathTemplate,
  item: ManifestItem,
  context: PathContext,
): StepResult<VirtualPath> {
  const filled = fillPath(template, item);
  if (!filled.ok) return filled;
  const [first = ""] = filled.value.split("/");
  if (beginsWithField(template) && SPECIAL.test(first)) return { ok: false, fault: `${shownValue(first)} ${BEGIN}` };
  const parsed = parseVirtualPath(filled.value, context);
  return parsed.ok ? { ok: true, value: parsed.path } : { ok: false, fault: parsed.reason };
}

/** What selects a home directory or a mount at the start of a path. */
const SPECIAL = /^~|:/;
const BEGIN = "cannot start a path; start it with `/`";

/** A worker's input with fields in its strings. */
export type InputTemplate = (item: ManifestItem) => StepResult<unknown>;

/** The largest input of one item. A template may name a long field many times. */
const MAX_INPUT_BYTES = 2 * 1024 * 1024;
/** A character becomes at most six bytes of JSON, so shorter inputs need no exact check. */
const SURELY_FITS_CHARS = MAX_INPUT_BYTES / 16;

/**
 * Parses JSON text, or takes a JSON value. The JSON is parsed before its strings are filled, so that no value can break out of
 * its string. A string that is exactly one field keeps the field's type. Keys are not templates.
 */
function parseInputTemplate(raw: unknown): StepResult<InputTemplate> {
  const parsed = typeof raw === "string" ? parseInputText(raw) : { ok: true as const, value: raw };
  if (!parsed.ok) return { ok: false, fault: `is not JSON: ${parsed.problem}` };
  try {
    const fill = fillerOf(parsed.value, 0);
    return { ok: true, value: (item) => filled(fill, item) };
  } catch (error) {
    return faultOf(error);
  }
}

/** `{meta}` alone is not JSON and can only mean that field. */
function parseInputText(raw: string): ReturnType<typeof parseJson> {
  return /^\s*\{[^{}"]*[^{}"\s][^{}"]*\}\s*$/.test(raw) ? { ok: true, value: raw.trim() } : parseJson(raw);
}

/** Carries a fault up the tree; does not leave this file. */
class InputFault extends Error {
  readonly ofTemplate: boolean;

  constructor(message: string, ofTemplate = false) {
    super(message);
    this.ofTemplate = ofTemplate;
  }
}

function faultOf(error: unknown): Extract<StepResult<never>, { ok: false }> {
  if (error instanceof InputFault) return { ok: false, fault: error.message, ofTemplate: error.ofTemplate };
  throw error;
}

interface Filling {
  readonly item: ManifestItem;
  /** Characters of the fields used so far. */
  chars: number;
}

type Fill = (filling: Filling) => unknown;

function filled(fill: Fill, item: ManifestItem): StepResult<unknown> {
  const filling = { item, chars: 0 };
  try {
    const value = fill(filling);
    const fits = filling.chars <= SURELY_FITS_CHARS || Buffer.byteLength(JSON.stringify(value)) <= MAX_INPUT_BYTES;
    return fits ? { ok: true, value } : { ok: false, fault: TOO_LARGE };
  } catch (error) {
    return faultOf(error);
  }
}

function fillerOf(value: unknown, depth: number): Fill {
  if (depth > MAX_JSON_DEPTH) throw new InputFault(`is nested more than ${MAX_JSON_DEPTH} levels deep`);
  if (typeof value === "string") return textFiller(value);
  if (Array.isArray(value)) {
    const each = value.map((inner) => fillerOf(inner, depth + 1));
    return (filling) => each.map((fill) => fill(filling));
  }
  if (value === null || typeof value === "boolean" || Number.isFinite(value)) return () => value;
  if (kindOf(value) !== "map" || typeof value !== "object") throw new InputFault("has a value that is not JSON");
  const each = Object.entries(value).map(([key, inner]) => [key, fillerOf(inner, depth + 1)] as const);
  return (filling) => Object.fromEntries(each.map(([key, fill]) => [key, fill(filling)]));
}

function textFiller(raw: string): Fill {
  const parsed = parseTemplate(raw);
  const shown = JSON.stringify(raw.slice(0, 100));
  if (!parsed.ok) throw new InputFault(`${shown} ${parsed.fault}`);
  const [only, ...further] = parsed.parts;
  if (only !== undefined && "field" in only && further.length === 0)
    return (filling) => wholeField(filling, only.field, shown);
  return (filling) => parsed.parts.map((part) => textOfPart(filling, part, shown)).join("");
}

/** `shown`: the text of the template, for messages. */
function wholeField(filling: Filling, name: string, shown: string): unknown {
  const field = fieldOf(filling.item, name);
  if (!field.ok) throw new InputFault(`${shown}: ${field.fault}`, field.ofTemplate);
  const { value = null } = field;
  take(filling, typeof value === "string" ? value.length : JSON.stringify(value).length);
  return value;
}

function textOfPart(filling: Filling, part: TemplatePart, shown: string): string {
  if ("text" in part) return part.text;
  const field = textOfField(filling.item, part.field);
  if (!field.ok) throw new InputFault(`${shown}: ${field.fault}`, field.ofTemplate);
  take(filling, field.value.length);
  return field.value;
}

function take(filling: Filling, chars: number): void {
  filling.chars += chars;
  if (filling.chars > MAX_INPUT_BYTES) throw new InputFault(TOO_LARGE);
}

const TOO_LARGE = `is more than ${MAX_INPUT_BYTES} bytes of JSON; pass large data as a file`;

/** A parsed item template. Null: not given. */
export interface ParsedItemTemplate {
  readonly attach: readonly Named<AttachmentTemplate>[];
  readonly allowRead: readonly Named<PathTemplate>[] | null;
  readonly allowWrite: readonly Named<PathTemplate>[] | null;
  readonly input: InputTemplate | null;
  readonly key: readonly TemplatePart[] | null;
}

/** A template and its name in messages: `attach {path}`. */
export interface Named<Template> {
  readonly about: string;
  readonly template: Template;
}

const MAX_PATHS = 100;

/** Throws a `TemplateError` with all faults of the template that do not depend on items. */
export function parseItemTemplate({
  attach = [],
  allowRead,
  allowWrite,
  input,
  key,
}: ItemTemplate): ParsedItemTemplate {
  const faults = new Faults();
  const parsed: ParsedItemTemplate = {
    attach: parseAll("attach", attach, parseAttachmentTemplate, faults),
    allowRead: allowRead === undefined ? null : parseAll("allow_read", allowRead, parseVirtualTemplate, faults),
    allowWrite: allowWrite === undefined ? null : parseAll("allow_write", allowWrite, parseVirtualTemplate, faults),
    input: input === undefined ? null : faults.valueOf("input", mistaken(parseInputTemplate(input))),
    key: key === undefined ? null : faults.valueOf(`key ${key}`, mistaken(parseKey(key))),
  };
  if (faults.ofTemplate.length > 0) throw new TemplateError(faults.ofTemplate);
  return parsed;
}

function parseAll<Template>(
  kind: string,
  raws: readonly string[],
  parse: (raw: string) => StepResult<Template>,
  faults: Faults,
): Named<Template>[] {
  const tooMany = `${raws.length} are given; at most ${MAX_PATHS} are allowed`;
  if (raws.length > MAX_PATHS) faults.valueOf(kind, mistaken({ ok: false, fault: tooMany }));
  return raws.slice(0, MAX_PATHS).flatMap((raw) => {
    const about = `${kind} ${raw}`;
    const template = faults.valueOf(about, mistaken(raw === "" ? { ok: false, fault: "is empty" } : parse(raw)));
    return template === null ? [] : [{ about, template }];
  });
}

function parseKey(raw: string): StepResult<readonly TemplatePart[]> {
  const parsed = parseTemplate(raw);
  return parsed.ok ? { ok: true, value: parsed.parts } : parsed;
}

/** Every fault that is found without an item is the template's. */
function mistaken<Value>(outcome: StepResult<Value>): StepResult<Value> {
  return outcome.ok ? outcome : { ...outcome, ofTemplate: true };
}

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

function parseAttachmentTemplate(raw: string): StepResult<AttachmentTemplate> {
  const named = splitName(raw);
  const path = parsePathTemplate(named?.path ?? raw);
  return path.ok ? { ok: true, value: { path: path.value, name: named?.name ?? null } } : path;
}

/** The attachment of one item. No value can lead out of the allowed directories. */
export function fillAttachment(
  { path: template, name: nameTemplate }: AttachmentTemplate,
  item: ManifestItem,
  places: AttachmentPlaces,
): StepResult<Attachment> {
  const filled = fillPath(template, item, true);
  if (!filled.ok) return filled;
  const path = posix.resolve(beginsWithField(template) ? places.manifestDir : places.templateDir, filled.value);
  if (!template.absolute && filled.value.startsWith("/") && !isWithin(path, places)) {
    const allowed = [places.manifestDir, ...places.within].join(", ");
    return { ok: false, fault: `${shownValue(path)} is outside the allowed directories: ${allowed}` };
  }
  const name: StepResult<string> =
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

/** The bases and the allowed directories of paths in templates. Absent: `templateDir` is `manifestDir`, `within` is empty. */
export interface FillContext extends Partial<AttachmentPlaces> {
  readonly manifestDir: string;
  /** How virtual paths are parsed; absent: from `/`, without names before a colon. */
  readonly paths?: PathContext;
}

/**
 * Makes the requests of items. Throws a `TemplateError` if the template is invalid; the result throws an `ItemRefusal` with all
 * faults of an item.
 */
export function itemFiller(template: ItemTemplate, context: FillContext): (item: ManifestItem) => ItemRequest {
  const { attach, allowRead, allowWrite, input, key } = parseItemTemplate(template);
  const { manifestDir, templateDir = manifestDir, within = [], paths = {} } = context;
  const places = { manifestDir, templateDir, within };
  return (item) => {
    const faults = new Faults();
    const virtual = (templates: readonly Named<PathTemplate>[]) =>
      fillAll(templates, (each) => fillVirtualPath(each, item, paths), faults);
    const attachments = fillAll(attach, (each) => fillAttachment(each, item, places), faults);
    noteTwins(attachments, faults);
    const filledKey = faults.valueOf(key === null ? "key" : `key ${template.key}`, keyOf(item, key));
    const request: ItemRequest = {
      index: item.index,
      key: filledKey ?? "",
      place: item.place,
      ...(input === null ? {} : { input: faults.valueOf("input", input(item)) }),
      attachments,
      ...(allowRead === null ? {} : { allowRead: virtual(allowRead) }),
      ...(allowWrite === null ? {} : { allowWrite: virtual(allowWrite) }),
    };
    if (faults.found.length > 0) throw new ItemRefusal(item, filledKey, faults);
    return request;
  };
}

function fillAll<Template, Value>(
  templates: readonly Named<Template>[],
  fill: (template: Template) => StepResult<Value>,
  faults: Faults,
): Value[] {
  return templates.flatMap(({ about, template }) => {
    const value = faults.valueOf(about, fill(template));
    return value === null ? [] : [value];
  });
}

function noteTwins(attachments: ItemRequest["attachments"], faults: Faults): void {
  const names = attachments.map(({ name }) => name);
  const twin = names.find((name, index) => names.indexOf(name) < index);
  if (twin !== undefined) faults.found.push(`attach: two files have the name ${twin}; rename one with PATH=NAME`);
}

const MAX_KEY_CHARS = 1000;
/** The first of these fields that an item has is its key, unless there is a template for it. */
const OWN_NAMES = ["key", "id", "relative", "path"];

/** The item's name in results. The journal checks that it is unique. */
export function keyOf(item: ManifestItem, template: readonly TemplatePart[] | null): StepResult<string> {
  const key = template === null ? ownKey(item) : textOfParts(item, template);
  if (!key.ok) return key;
  if (key.value === "") return { ok: false, fault: "it is empty" };
  if (key.value.length > MAX_KEY_CHARS) return { ok: false, fault: `it is longer than ${MAX_KEY_CHARS} characters` };
  if (/\p{Cs}/u.test(key.value)) return { ok: false, fault: "it is not valid Unicode" };
  return /\p{Cc}/u.test(key.value) ? { ok: true, value: withoutControls(key.value) } : key;
}

/** `a\u{a}b`: two keys remain two. */
function withoutControls(key: string): string {
  return key.replaceAll(/[\p{Cc}\\]/gu, (found) =>
    found === "\\" ? "\\\\" : `\\u{${found.charCodeAt(0).toString(16)}}`,
  );
}

function ownKey(item: ManifestItem): StepResult<string> {
  const { fields } = item;
  const named = OWN_NAMES.find((name) => Object.hasOwn(fields, name) && fields[name] !== "" && fields[name] !== null);
  return named === undefined ? { ok: true, value: String(item.index) } : textOfField(item, named);
}

/** The literal beginning of a path of `allow_read` or `allow_write`: every item's path is at or below it. */
export interface TemplatePath {
  readonly about: string;
  readonly path: VirtualPath;
  readonly isWritten: boolean;
}

/** Templates that begin with a field have none. Throws a `TemplateError` if the template is invalid. */
export function pathsIn(template: ItemTemplate): TemplatePath[] {
  const { allowRead, allowWrite } = parseItemTemplate(template);
  const kinds = [
    { templates: allowRead ?? [], isWritten: false },
    { templates: allowWrite ?? [], isWritten: true },
  ];
  return kinds.flatMap(({ templates, isWritten }) =>
    templates.flatMap(({ about, template }) => {
      const parsed = parseVirtualPath(literalStart(template), {});
      return parsed.ok ? [{ about, path: parsed.path, isWritten }] : [];
    }),
  );
}

/** Throws a `TemplateError` for paths at which the worker has nothing, or may not write: no item could run. */
export function checkPaths(paths: readonly TemplatePath[], sandbox: Sandbox): void {
  const problems = paths.flatMap(({ about, path, isWritten }): TemplateProblem[] => {
    const fault = pathFault(path, isWritten, sandbox);
    return fault === null ? [] : [{ about, fault }];
  });
  if (problems.length > 0) throw new TemplateError(problems);
}

function pathFault(path: VirtualPath, isWritten: boolean, sandbox: Sandbox): string | null {
  const isAbove = sandbox.mounts.some((mount) => covers(path, mount.path) && (!isWritten || mount.mode === "rw"));
  if (isAbove) return null;
  const check = isWritten ? checkWrite : checkRead;
  return check(sandbox, path, { directory: true })?.message.replaceAll("\n", " ") ?? null;
}
