import { z } from "zod";
import { present } from "../../text/present.ts";
import { consent } from "../terms/terms.ts";
import { byKind, map } from "../yaml/shape.ts";

/** The words of one command, as a rule names them. */
export const pattern = z
  .string()
  .max(1000)
  .superRefine((raw, context) => {
    const message = patternFault(raw);
    if (message !== null) context.addIssue({ code: "custom", message });
  })
  .transform((raw) => raw.trim().split(/\s+/).join(" "));

const rule = map({ pattern, approval: consent, why: z.string().min(1).max(500).optional() }).transform(present);

const rules = z.array(rule).max(200).superRefine(refuseTwins);

/**
 * `shell_rules` of a worker: a default and rules, or the rules alone, with `ask` as the default.
 *
 * What the rules mean is `approval/shell-rules/`; here only what could never match is refused, because a mistaken
 * `blocked` rule would block nothing.
 */
export const shellRules = byKind(
  {
    list: rules.transform((only) => ({ default: "ask" as const, rules: only })),
    map: map({ default: consent.default("ask"), rules: rules.default([]) }),
  },
  "must be a list of rules, or a map of `default` and `rules`",
);

export type ShellRulesYaml = z.output<typeof shellRules>;

/** Why no command could ever match, or null. */
function patternFault(raw: string): string | null {
  const words = raw.trim().split(/\s+/);
  const [first = ""] = words;
  if (first === "") return "must be the words of a command, such as `git status` or `git log **`";
  const syntax = /["'\\`$;&|<>()]/.exec(raw)?.[0];
  if (syntax !== undefined)
    return `\`${syntax}\` is not allowed in a pattern: a pattern is the words of one command, and \`*\` matches any one word`;
  if (
    words.slice(0, -1).some((word) => word.includes("**")) ||
    words
      .at(-1)
      ?.replace(/^\*\*$/, "")
      .includes("**")
  )
    return "`**` matches all further words, so it must be the last word";
  if (/(^|[=:\s])~/.test(raw)) return "`~` is expanded by the shell: write the full path";
  if (/^[A-Za-z_]\w*\+?=/.test(first))
    return "a pattern begins with the command; it cannot match variables that are set before it";
  return null;
}

function refuseTwins(all: readonly { readonly pattern: string }[], context: z.core.$RefinementCtx): void {
  for (const [index, { pattern: text }] of all.entries()) {
    if (all.findIndex((other) => other.pattern === text) < index) {
      const message = `\`${text}\` is listed twice`;
      context.issues.push({ code: "custom", input: text, path: [index, "pattern"], message });
    }
  }
}
