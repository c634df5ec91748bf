import { type Consent, isLooser } from "../../sandbox/approval.ts";

/**
 * Which shell commands a worker may run, and with whose consent.
 *
 * This is consent, not capability: what a command can reach is decided by the sandbox of its cell, whatever stands here.
 */
export interface ShellRules {
  /** For a command that no rule speaks of. */
  readonly default: Consent;
  readonly rules: readonly ShellRule[];
}

export interface ShellRule {
  /** Words as `pattern.ts` reads them: `git status`, `git log **`. */
  readonly pattern: string;
  readonly approval: Consent;
  /** Told to whoever is asked or refused. */
  readonly why?: string;
}

/** What holds for text that cannot be judged: it could be what the strictest rule is about. */
export function strictestConsent({ default: otherwise, rules }: ShellRules): Consent {
  return rules.reduce((strictest, rule) => stricterOf(strictest, rule.approval), otherwise);
}

export function stricterOf(a: Consent, b: Consent): Consent {
  return isLooser(a, b) ? b : a;
}
