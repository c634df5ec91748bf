import type { ShellDecision, ShellReason } from "./decide.ts";

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
