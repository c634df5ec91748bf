import { type PathContext, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ManifestItem } from "../model/item.ts";
import type { Outcome } from "./faults.ts";
import { beginsWithField, fillPath, type PathTemplate, parsePathTemplate, shownValue } from "./path-template.ts";

/** Where a field stands in the first name, that name must not be a mount's or a home as well: `text:{stem}`. */
export function parseVirtualTemplate(raw: string): Outcome<PathTemplate> {
  const parsed = parsePathTemplate(raw);
  if (!parsed.ok || !beginsWithField(parsed.value)) return parsed;
  const [first = []] = parsed.value.names;
  return first.some((part) => "text" in part && SPECIAL.test(part.text)) ? { ok: false, fault: BEGIN } : parsed;
}

/** A virtual path for one item, in its one canonical form: the same place has the same path. */
export function fillVirtualPath(
  template: PathTemplate,
  item: ManifestItem,
  context: PathContext,
): Outcome<VirtualPath> {
  const filled = fillPath(template, item);
  if (!filled.ok) return filled;
  const [first = ""] = filled.value.split("/");
  if (beginsWithField(template) && SPECIAL.test(first)) return { ok: false, fault: `${shownValue(first)} ${BEGIN}` };
  const parsed = parseVirtualPath(filled.value, context);
  return parsed.ok ? { ok: true, value: parsed.path } : { ok: false, fault: parsed.reason };
}

/** What names a home or a mount at the beginning of a path. */
const SPECIAL = /^~|:/;
const BEGIN = "cannot begin a path; begin it with `/`";
