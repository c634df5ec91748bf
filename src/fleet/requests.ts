import { ItemRefusal, TemplateError } from "./items/faults.ts";
import { itemFiller } from "./items/fill-template.ts";
import { hashOf, usesHash } from "./items/item-hash.ts";
import { type Reading, readItems } from "./items/read-items.ts";
import { folderOf, type ItemSource } from "./items/source.ts";
import type { ItemRequest, ItemTemplate, ManifestItem } from "./model/item.ts";

export interface RequestsOf {
  readonly source: ItemSource;
  readonly template: ItemTemplate;
  /** Directories, in addition to the source's own, in which items may name files by absolute paths. */
  readonly within: readonly string[];
  /** The base for paths whose template starts with literal text. Absolute. */
  readonly templateDir: string;
}

/**
 * The requests of all items, in order. An item that makes no valid request is refused alone, so one hostile line or file
 * name does not affect the other items. A field that the first item does not have is a mistake of the template.
 *
 * @throws TemplateError, for every mistake before the first request
 */
export async function* itemRequests(
  { source, template, within, templateDir }: RequestsOf,
  reading: Reading,
): AsyncGenerator<ItemRequest> {
  const manifestDir = folderOf(source, reading.cwd);
  const fill = itemFiller(template, { manifestDir, templateDir, within });
  const isHashed = usesHash(template);
  for await (const item of readItems(source, reading)) {
    try {
      yield { ...fill(isHashed ? { ...item, hash: await hashOf(item) } : item), ...keptFields(item) };
    } catch (error) {
      if (!(error instanceof ItemRefusal)) throw error;
      const { index, place } = item;
      if (index === 0 && error.ofTemplate.length > 0) throw new TemplateError(error.ofTemplate);
      const refusal = error.problems.join("; ");
      yield { index, key: error.key ?? `item ${index}`, place, attachments: [], refusal, ...keptFields(item) };
    }
  }
}

/** JSON of one field, and of all of one item. */
const MAX_FIELD_CHARS = 4000;
const MAX_FIELDS_CHARS = 16 * 1024;

/** The item's own fields as the journal keeps them for exports: those that are too long are left out. */
function keptFields({ record }: ManifestItem): Pick<ItemRequest, "fields"> {
  let left = MAX_FIELDS_CHARS;
  const kept = Object.entries(record).filter(([name, value]) => {
    const chars = name.length + (typeof value === "string" ? value.length : (jsonOf(value)?.length ?? MAX_FIELD_CHARS));
    if (chars > MAX_FIELD_CHARS || chars > left) return false;
    left -= chars;
    return true;
  });
  return kept.length === 0 ? {} : { fields: Object.fromEntries(kept) };
}

/** A program's value may be no JSON. */
function jsonOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}
