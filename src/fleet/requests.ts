import { ItemRefusal } from "./items/faults.ts";
import { itemFiller } from "./items/fill-template.ts";
import { type Reading, readItems } from "./items/read-items.ts";
import { folderOf, type ItemSource } from "./items/source.ts";
import type { ItemRequest, ItemTemplate } from "./model/item.ts";

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
 * name does not affect the other items.
 */
export async function* itemRequests(
  { source, template, within, templateDir }: RequestsOf,
  reading: Reading,
): AsyncGenerator<ItemRequest> {
  const manifestDir = folderOf(source, reading.cwd);
  const fill = itemFiller(template, { manifestDir, templateDir, within });
  for await (const item of readItems(source, reading)) {
    try {
      yield fill(item);
    } catch (error) {
      if (!(error instanceof ItemRefusal)) throw error;
      const { index, place } = item;
      yield { index, key: error.key ?? `item ${index}`, place, attachments: [], refusal: error.problems.join("; ") };
    }
  }
}
