import { parseTemplate, type TemplatePart } from "../../declarations/terms/template-text.ts";
import type { ItemTemplate } from "../model/item.ts";
import { type AttachmentTemplate, parseAttachmentTemplate } from "./attachment-template.ts";
import { Faults, type Outcome, TemplateError } from "./faults.ts";
import { type InputTemplate, parseInputTemplate } from "./input-template.ts";
import type { PathTemplate } from "./path-template.ts";
import { parseVirtualTemplate } from "./virtual-template.ts";

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
  parse: (raw: string) => Outcome<Template>,
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

function parseKey(raw: string): Outcome<readonly TemplatePart[]> {
  const parsed = parseTemplate(raw);
  return parsed.ok ? { ok: true, value: parsed.parts } : parsed;
}

/** Every fault that is found without an item is the template's. */
function mistaken<Value>(outcome: Outcome<Value>): Outcome<Value> {
  return outcome.ok ? outcome : { ...outcome, ofTemplate: true };
}
