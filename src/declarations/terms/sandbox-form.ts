import type { YamlDocument } from "../yaml/document.ts";
import type { Problem } from "../yaml/problem.ts";
import { kindOf } from "../yaml/shape.ts";

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

/**
 * What is wrong with how `sandbox` declares its mounts: zones, paths and root exclude each other.
 *
 * It looks at the raw document, so that a mixture is reported together with all other problems of the file.
 */
export function formProblems(document: YamlDocument): Problem[] {
  const sandbox = mapAt(document.raw, "sandbox");
  if (sandbox === null) return [];
  const said = ["zones", "paths", "root"].filter((key) => key in sandbox && !isZonesFolder(sandbox, key));
  const [first] = said;
  const problem = (key: string, advice: string) =>
    document.problemAt(["sandbox", key], `${together(first, key)}; ${advice}`, "key");

  const problems = said.slice(1).map((other) => problem(other, "declare exactly one of zones, paths, root"));
  if ("mode" in sandbox && first !== undefined && first !== "zones")
    problems.push(problem("mode", "`mode` is only for zones"));
  if (sandbox.mode === "direct") problems.push(...directProblems(sandbox, document));
  if (first === undefined && !("mode" in sandbox) && kindOf(sandbox.root) === "text") {
    const message =
      "is the folder of zones, and there are none; declare `zones`, or write `root: { root: FOLDER }` to give it as `/`";
    problems.push(document.problemAt(["sandbox", "root"], message));
  } else if (first === undefined && !("mode" in sandbox)) {
    const message = "declares no files; use exactly one of zones, paths, root (`zones: {}` for none)";
    problems.push(document.problemAt(["sandbox"], message, "key"));
  }
  return problems;
}

/** With `mode: direct` there is no common folder: each zone names its own. */
function directProblems(sandbox: Record<string, unknown>, document: YamlDocument): Problem[] {
  const problems: Problem[] = [];
  if (!("zones" in sandbox)) {
    problems.push(document.problemAt(["sandbox", "mode"], "`direct` needs `zones`, each with its `path`"));
  }
  if (kindOf(sandbox.root) === "text") {
    const message = "is only for `mode: sandboxed`; with `direct` each zone has its own `path`";
    problems.push(document.problemAt(["sandbox", "root"], message, "key"));
  }
  for (const [name, zone] of Object.entries(mapAt(sandbox, "zones") ?? {})) {
    if (kindOf(zone) !== "map" || "path" in (zone as object)) continue;
    problems.push(document.problemAt(["sandbox", "zones", name, "path"], "is missing; `mode: direct` needs it"));
  }
  return problems;
}

/**
 * What is wrong with how a worker asks for files: by zones, by paths, or by narrowing what its caller has.
 */
export function needProblems(document: YamlDocument): Problem[] {
  const sandbox = mapAt(document.raw, "sandbox");
  if (sandbox === null) return [];
  const said = [["zones"], ["paths"], ["inherit", "allow_read", "allow_write"]].flatMap(
    (keys) => keys.find((key) => key in sandbox) ?? [],
  );
  const ways = "use exactly one way: zones, paths, or inherit with allow_read and allow_write";
  return said.slice(1).map((key) => document.problemAt(["sandbox", key], `${together(said[0], key)}; ${ways}`, "key"));
}

function together(one: string | undefined, other: string | undefined): string {
  return `\`${one}\` and \`${other}\` cannot be used together`;
}

/** `root: .sandbox` beside zones is their folder, and not the root form, which is a map. */
function isZonesFolder(sandbox: Record<string, unknown>, key: string): boolean {
  return key === "root" && kindOf(sandbox.root) === "text" && !("paths" in sandbox);
}

function mapAt(raw: unknown, key: string): Record<string, unknown> | null {
  const found = kindOf(raw) === "map" ? (raw as Record<string, unknown>)[key] : undefined;
  return kindOf(found) === "map" ? (found as Record<string, unknown>) : null;
}
