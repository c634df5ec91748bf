import type { TemplatePart } from "../../declarations/terms/template-text.ts";
import type { ManifestItem } from "../model/item.ts";
import { textOfField, textOfParts } from "./item-field.ts";
import type { Outcome } from "./outcome.ts";

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
