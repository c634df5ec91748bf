/** A piece of a template: literal text, or a field to replace. */
export type TemplatePart = { readonly text: string } | { readonly field: string };

export type ParsedTemplate =
  | { readonly ok: true; readonly parts: readonly TemplatePart[] }
  /** `fault` follows the name of the value. */
  | { readonly ok: false; readonly fault: string };

const MAX_TEMPLATE_CHARS = 65_536;
const MAX_FIELD_CHARS = 256;

/**
 * A text in which `{field}` is replaced by the item's value, `{field.inner}` by a value inside of it, and `{{` and `}}` by
 * the braces themselves. Text between two fields is one part, and no part is empty.
 */
export function parseTemplate(raw: string): ParsedTemplate {
  if (raw.length > MAX_TEMPLATE_CHARS) return refuse(`is longer than ${MAX_TEMPLATE_CHARS} characters`);
  const parts: TemplatePart[] = [];
  let text = "";
  let end = 0;
  for (const { 0: token, 1: inner, index } of raw.matchAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g)) {
    text += raw.slice(end, index);
    end = index + token.length;
    if (token === "{{" || token === "}}") text += token[0];
    else if (inner === undefined) return refuse(`has a single \`${token}\`; ${BRACES}`);
    else {
      const field = inner.trim();
      if (field === "" || field.length > MAX_FIELD_CHARS) return refuse(`has braces without a field's name; ${BRACES}`);
      if (text !== "") parts.push({ text });
      text = "";
      parts.push({ field });
    }
  }
  text += raw.slice(end);
  return { ok: true, parts: text === "" ? parts : [...parts, { text }] };
}

const BRACES = "`{name}` is a field; write `{{` and `}}` for braces";

function refuse(fault: string): ParsedTemplate {
  return { ok: false, fault };
}
