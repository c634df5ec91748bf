import { ItemRefusal } from "./items/faults.ts";
import { itemFiller } from "./items/fill-template.ts";
import { type Reading, readItems } from "./items/read-items.ts";
import { folderOf, type ItemSource } from "./items/source.ts";
import type { ItemRequest, ItemTemplate } from "./model/item.ts";

export interface RequestsOf {
  readonly source: ItemSource;
  readonly template: ItemTemplate;
  /** Besides the source's own folder, where its lines may name files by absolute paths. */
  readonly within: readonly string[];
  /** Where paths begin that a template itself begins. Absolute. */
  readonly templateDir: string;
}

/**
 * The requests of all items, as they are read. An item of which none can be made is refused by itself: one hostile line,
 * or one hostile file's name, loses no other item.
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
      yield { index, key: `item ${index}`, place, attachments: [], refusal: error.problems.join("; ") };
    }
  }
}
