import { type Consent, isLooser } from "../../sandbox/approval.ts";

/**
 * Which shell commands a worker may run, and with which consent.
 *
 * This is consent, not capability: the sandbox of the cell limits what a command can reach, whatever the rules say.
 */
export interface ShellRules {
  /** For a command that matches no rule. */
  readonly default: Consent;
  readonly rules: readonly ShellRule[];
}

export interface ShellRule {
  /** Words in the syntax of `pattern.ts`: `git status`, `git log **`. */
  readonly pattern: string;
  readonly approval: Consent;
  /** Shown to the person who is asked and to the refused worker. */
  readonly why?: string;
}

/** The consent for text that cannot be analysed: the strictest rule could match it. */
export function strictestConsent({ default: otherwise, rules }: ShellRules): Consent {
  return rules.reduce((strictest, rule) => stricterOf(strictest, rule.approval), otherwise);
}

export function stricterOf(a: Consent, b: Consent): Consent {
  return isLooser(a, b) ? b : a;
}
