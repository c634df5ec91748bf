import type { ShellDecision, ShellReason } from "./decide.ts";

/** Why a command line is asked about or refused, for the person who is asked and for the LLM that wrote it. */
export function describeShellDecision({ consent, because }: ShellDecision): string {
  const verdict = { pre_approved: "may run", ask: "needs approval", blocked: "is blocked" }[consent];
  return `\`${because.part}\` ${verdict}: ${reasonOf(because)}`;
}

function reasonOf({ cause, pattern, why }: ShellReason): string {
  const because = why === null ? "." : `: ${why.replace(/[.\s]+$/, "")}.`;
  switch (cause) {
    case "rule":
      return `the rule \`${pattern}\` says so${because}`;
    case "unsure":
      return `what it expands to could be what the rule \`${pattern}\` is about${because} Write the words out.`;
    case "default":
      return "no rule speaks of it, so the default holds.";
    case "hidden":
      return "it runs something that its words do not show. Run that command directly.";
    case "opaque":
      return `it cannot be judged${because}`;
    case "assignment":
      return "it sets a variable, which no rule speaks of, so the default holds. Run the command without it.";
    case "redirection":
      return "it redirects to or from a file, which no rule speaks of, so the default holds. Run the command without it.";
    case "input":
      return "it feeds a text to the command, which no rule speaks of, so the default holds. Run the command without it.";
  }
}
