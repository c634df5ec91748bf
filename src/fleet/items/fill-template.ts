import type { TemplatePart } from "../../declarations/terms/sandbox-form.ts";
import type { PathContext } from "../../sandbox/virtual-path.ts";
import type { ItemRequest, ItemTemplate, ManifestItem } from "../model/item.ts";
import { Faults, ItemRefusal, type StepResult, textOfField, textOfParts } from "./item-fields.ts";
import {
  type AttachmentPlaces,
  fillAttachment,
  fillVirtualPath,
  type Named,
  parseItemTemplate,
} from "./item-template.ts";
import type { PathTemplate } from "./path-template.ts";

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
  if (/[\p{Cc}\p{Cs}]/u.test(key.value)) return { ok: false, fault: "it contains a control character" };
  return key;
}

function ownKey(item: ManifestItem): StepResult<string> {
  const { fields } = item;
  const named = OWN_NAMES.find((name) => Object.hasOwn(fields, name) && fields[name] !== "" && fields[name] !== null);
  return named === undefined ? { ok: true, value: String(item.index) } : textOfField(item, named);
}
