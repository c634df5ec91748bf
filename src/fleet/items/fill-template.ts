import type { TemplatePart } from "../../declarations/terms/template-text.ts";
import type { PathContext } from "../../sandbox/virtual-path.ts";
import type { ItemRequest, ItemTemplate, ManifestItem } from "../model/item.ts";
import { fillAttachment } from "./attachment-template.ts";
import { Faults, ItemRefusal, type Outcome } from "./faults.ts";
import { textOfField, textOfParts } from "./item-fields.ts";
import { type Named, parseItemTemplate } from "./item-template.ts";
import type { PathTemplate } from "./path-template.ts";
import { fillVirtualPath } from "./virtual-template.ts";

/** Where the paths of templates begin and may lead. Host folders are absolute. */
export interface FillContext {
  /** Where the path of an attachment begins that begins with a field: the manifest's folder, or the pattern's. */
  readonly manifestDir: string;
  /** Where one begins that the template itself begins; absent: in `manifestDir`. */
  readonly templateDir?: string;
  /** Besides `manifestDir`, where a field may name files by absolute paths; absent: nowhere. */
  readonly within?: readonly string[];
  /** How virtual paths are read; absent: from `/`, and no name stands before a colon. */
  readonly paths?: PathContext;
}

/** The request that is made of one item. Throws an `ItemRefusal` with everything that is wrong with it. */
export function fillTemplate(template: ItemTemplate, item: ManifestItem, context: FillContext): ItemRequest {
  return itemFiller(template, context)(item);
}

/** The same for many items, where the template is parsed once. Throws an `ItemsError` where the template itself is wrong. */
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
    const request: ItemRequest = {
      index: item.index,
      key: faults.valueOf("key", keyOf(item, key)) ?? "",
      place: item.place,
      ...(input === null ? {} : { input: faults.valueOf("input", input(item)) }),
      attachments,
      ...(allowRead === null ? {} : { allowRead: virtual(allowRead) }),
      ...(allowWrite === null ? {} : { allowWrite: virtual(allowWrite) }),
    };
    if (faults.found.length > 0) throw new ItemRefusal(item, faults.found);
    return request;
  };
}

function fillAll<Template, Value>(
  templates: readonly Named<Template>[],
  fill: (template: Template) => Outcome<Value>,
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
  if (twin !== undefined) faults.found.push(`attach: two files would be called ${twin}; write PATH=NAME`);
}

const MAX_KEY_CHARS = 1000;
/** The first of these that an item has is what it is called, where nobody says otherwise. */
const OWN_NAMES = ["key", "id", "relative", "path"];

/** What an item is called in results. Whether it is unique is known when all items are. */
export function keyOf(item: ManifestItem, template: readonly TemplatePart[] | null): Outcome<string> {
  const key = template === null ? ownKey(item) : textOfParts(item, template);
  if (!key.ok) return key;
  if (key.value === "") return { ok: false, fault: "it is empty" };
  if (key.value.length > MAX_KEY_CHARS) return { ok: false, fault: `it is longer than ${MAX_KEY_CHARS} characters` };
  if (/[\p{Cc}\p{Cs}]/u.test(key.value)) return { ok: false, fault: "it holds a control character" };
  return key;
}

function ownKey(item: ManifestItem): Outcome<string> {
  const { fields } = item;
  const named = OWN_NAMES.find((name) => Object.hasOwn(fields, name) && fields[name] !== "" && fields[name] !== null);
  return named === undefined ? { ok: true, value: String(item.index) } : textOfField(item, named);
}
