import { type Consent, isLooser } from "../../sandbox/approval.ts";
import {
  type Beside,
  grantingRule,
  matchRule,
  type ShellPart,
  type ShellRule,
  type ShellRules,
  type SimpleCommand,
  shownPart,
  specificity,
  spellsOut,
  stricterOf,
  strictestConsent,
} from "./pattern.ts";
import { type Reading, readLine } from "./reading.ts";

export interface ShellDecision {
  /** The strictest consent of all parts of the command line. */
  readonly consent: Consent;
  readonly because: ShellReason;
}

/** The decision on a command line. */
export interface LineDecision extends ShellDecision {
  /** What is to be shown and run: the line printed anew from what was judged; as written if it is opaque or nothing is judged. */
  readonly runs: string;
  /** What a rule grants this line beyond the worker's other commands; absent: nothing. */
  readonly grants?: ShellRule["grants"];
}

/** The part that decided, and why. */
export interface ShellReason {
  /**
   * `rule`: a rule matches. `default`: no rule matches. `unsure`: a rule could match after the shell's expansions.
   * `hidden`: it runs a command that its words do not show. `opaque`: it cannot be analysed. The others: an assignment,
   * redirection or standard input beside the words, which rules do not cover.
   */
  readonly cause: "rule" | "default" | "unsure" | "hidden" | "opaque" | "input" | NonNullable<Beside>;
  /** The text in the command line, shortened. */
  readonly part: string;
  /** The pattern of the rule that decided, if one did. */
  readonly pattern: string | null;
  /** The rule's `why`, or the reason that makes the part opaque. */
  readonly why: string | null;
}

/**
 * Decides a command line by a worker's shell rules, before it runs.
 *
 * Each simple command is decided separately and the strictest result counts: a rule for `git status` does not cover
 * `git status; rm -rf /`. Of the matching rules `blocked` wins, then the most specific. Text that cannot be analysed gets
 * the strictest consent of all rules and the default. Rules cover words only: with an assignment or a redirection, a command
 * also needs the default's consent. `reading`: of this line, if it was read before. If no rule and no default is stricter than `pre_approved`, nothing is judged.
 */
export function decideShell(
  command: string,
  rules: ShellRules,
  reading: () => Reading = () => readLine(command),
): LineDecision {
  const nothing = decided(rules.default, "default", shownPart(command));
  const isGranting = rules.rules.some(({ grants }) => grants !== undefined);
  if (!isGranting && strictestConsent(rules) === "pre_approved") return { ...nothing, runs: command };
  const { parts, printed } = reading();
  const decisions = parts.map((part) => decidePart(part, rules));
  // The first of equally strict parts, so that the answer names the one that a reader sees first.
  const decision = decisions.reduce(
    (worst, one) => (isLooser(worst.consent, one.consent) ? one : worst),
    decisions[0] ?? nothing,
  );
  const grants = isGranting && printed !== null ? grantingRule(parts, rules)?.grants : undefined;
  return { ...decision, runs: printed ?? command, ...(grants === undefined ? {} : { grants }) };
}

function decidePart(part: ShellPart, rules: ShellRules): ShellDecision {
  switch (part.kind) {
    case "opaque":
      return decided(strictestConsent(rules), "opaque", part.text, { why: part.reason });
    case "assignment":
    case "redirection":
      return decided(rules.default, part.kind, part.text);
    case "command": {
      const byWords = decideWords(part, rules);
      if (part.beside === null || !isLooser(byWords.consent, rules.default)) return byWords;
      return decided(rules.default, part.beside, part.text);
    }
  }
}

function decideWords({ words, hides, text }: SimpleCommand, rules: ShellRules): ShellDecision {
  const matching = rules.rules.map((rule) => ({ rule, match: matchRule(rule, words) }));
  const sure = matching.flatMap(({ rule, match }) => (match === "yes" ? [rule] : []));
  const unsure = matching.flatMap(({ rule, match }) => (match === "maybe" ? [rule] : []));
  const best = mostSpecific(hides ? sure.filter((rule) => spellsOut(rule) || rule.approval === "blocked") : sure);
  if (hides && best === null) return decided(strictestConsent(rules), "hidden", text);
  const surely = best === null ? decided(rules.default, "default", text) : decided(best.approval, "rule", text, best);
  const strictest = mostSpecific(unsure.filter((rule) => isLooser(surely.consent, rule.approval)));
  return strictest === null ? surely : decided(strictest.approval, "unsure", text, strictest);
}

/** `blocked` first; then the most specific rule; of two equally specific ones, the stricter. */
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

/** Why a command line needs approval or is refused, for the person who is asked and for the LLM that wrote it. */
export function describeShellDecision({ consent, because }: ShellDecision): string {
  const verdict = { pre_approved: "may run", ask: "needs approval", blocked: "is blocked" }[consent];
  return `\`${because.part}\` ${verdict}: ${reasonOf(because)}`;
}

function reasonOf({ cause, pattern, why }: ShellReason): string {
  const because = why === null ? "." : `: ${why.replace(/[.\s]+$/, "")}.`;
  switch (cause) {
    case "rule":
      return `the rule \`${pattern}\` matches${because}`;
    case "unsure":
      return `after expansion the rule \`${pattern}\` could match${because} Write the words without expansions.`;
    case "default":
      return "no rule matches, so the default applies.";
    case "hidden":
      return "it runs another command that its words do not show. Run that command directly.";
    case "opaque":
      return `it cannot be analysed${because}`;
    case "assignment":
      return "it sets a variable, which rules do not cover, so the default applies. Run the command without it.";
    case "redirection":
      return "it redirects to or from a file, which rules do not cover, so the default applies. Run the command without it.";
    case "input":
      return "it passes text as input, which rules do not cover, so the default applies. Run the command without it.";
  }
}
