import { type Consent, isLooser } from "../../sandbox/approval.ts";
import { hidesCommand } from "./hiding.ts";
import { type Beside, type ShellPart, shellParts } from "./parts.ts";
import { matchRule, type ShellWord, specificity, spellsOut } from "./pattern.ts";
import { type ShellRule, type ShellRules, stricterOf, strictestConsent } from "./rules.ts";

export interface ShellDecision {
  /** The strictest consent of all parts of the command line. */
  readonly consent: Consent;
  readonly because: ShellReason;
}

/** The part that decided, and what about it. */
export interface ShellReason {
  /**
   * `rule`: a rule speaks of it. `default`: none does. `unsure`: a rule could speak of it, once its expansions are known.
   * `hidden`: it runs something that it does not show. `opaque`: it cannot be read. The others: something beside the
   * words, which no rule speaks of.
   */
  readonly cause: "rule" | "default" | "unsure" | "hidden" | "opaque" | NonNullable<Beside>;
  /** As written in the command line, shortened. */
  readonly part: string;
  /** The rule's, where one decided. */
  readonly pattern: string | null;
  /** The rule's own words, or what makes the part opaque. */
  readonly why: string | null;
}

/**
 * What a worker's shell rules say of a command line, before it is run.
 *
 * Each simple command is decided by itself, and the strictest wins: a rule for `git status` says nothing of
 * `git status; rm -rf /`. Of the rules for one command `blocked` wins, then the most specific. What cannot be judged
 * has the strictest consent that the rules name at all, the default among them. A rule speaks of words only: with an
 * assignment before it, a file redirected, or a here-document, a command also needs the default's consent.
 */
export function decideShell(command: string, rules: ShellRules): ShellDecision {
  const parts = shellParts(command);
  const decisions = parts.map((part) => decidePart(part, rules));
  const nothing = decided(rules.default, "default", command);
  // The first of the strictest, so that the answer names the part that a reader meets first.
  return decisions.reduce(
    (worst, one) => (isLooser(worst.consent, one.consent) ? one : worst),
    decisions[0] ?? nothing,
  );
}

function decidePart(part: ShellPart, rules: ShellRules): ShellDecision {
  switch (part.kind) {
    case "opaque":
      return decided(strictestConsent(rules), "opaque", part.text, { why: part.reason });
    case "assignment":
    case "redirection":
      return decided(rules.default, part.kind, part.text);
    case "command": {
      const byWords = decideWords(part.words, part.text, rules);
      if (part.beside === null || !isLooser(byWords.consent, rules.default)) return byWords;
      return decided(rules.default, part.beside, part.text);
    }
  }
}

function decideWords(words: readonly ShellWord[], text: string, rules: ShellRules): ShellDecision {
  const matching = rules.rules.map((rule) => ({ rule, match: matchRule(rule, words) }));
  const sure = matching.flatMap(({ rule, match }) => (match === "yes" ? [rule] : []));
  const unsure = matching.flatMap(({ rule, match }) => (match === "maybe" ? [rule] : []));
  const hidden = hidesCommand(words);
  const best = mostSpecific(hidden ? sure.filter((rule) => spellsOut(rule) || rule.approval === "blocked") : sure);
  if (hidden && best === null) return decided(strictestConsent(rules), "hidden", text);
  const surely = best === null ? decided(rules.default, "default", text) : decided(best.approval, "rule", text, best);
  const strictest = mostSpecific(unsure.filter((rule) => isLooser(surely.consent, rule.approval)));
  return strictest === null ? surely : decided(strictest.approval, "unsure", text, strictest);
}

/** `blocked` before all; then the rule that says most; of two that say as much, the stricter. */
function mostSpecific(rules: readonly ShellRule[]): ShellRule | null {
  const blocked = rules.filter((rule) => rule.approval === "blocked");
  const [best = null] = (blocked.length > 0 ? blocked : rules).toSorted(
    (a, b) => specificity(b) - specificity(a) || (stricterOf(a.approval, b.approval) === a.approval ? -1 : 1),
  );
  return best;
}

function decided(
  consent: Consent,
  cause: ShellReason["cause"],
  part: string,
  { pattern = null, why = null }: { readonly pattern?: string | null; readonly why?: string | null } = {},
): ShellDecision {
  return { consent, because: { cause, part, pattern, why } };
}
