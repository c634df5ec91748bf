import { type PathContext, parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ManifestItem } from "../model/item.ts";
import type { Outcome } from "./faults.ts";
import { beginsWithField, fillPath, type PathTemplate, parsePathTemplate, shownValue } from "./path-template.ts";

/** A first name with a field must not select a mount or a home directory: `text:{stem}` is refused. */
export function parseVirtualTemplate(raw: string): Outcome<PathTemplate> {
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
): Outcome<VirtualPath> {
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
