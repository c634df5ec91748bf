import { COMPLETED_SHELLS } from "../shell/complete.ts";
import type { Frame } from "./frame.ts";
import { examples, oneOf } from "./options.ts";

export function addCompletion({ does, terminal, verb }: Frame): void {
  oneOf(verb("completion"), "the shell", COMPLETED_SHELLS)
    .addHelpText(
      "after",
      examples('eval "$(corral completion bash)"', "corral completion fish > ~/.config/fish/completions/corral.fish"),
    )
    .action(does(async (shell) => (await import("../shell/completion.ts")).completionVerb(shell, terminal)));

  // The scripts call it; it is not for people.
  verb("complete").action(
    does(async (shell, words, _, command) =>
      (await import("../shell/complete.ts")).completeVerb(shell, words, command.parent, terminal),
    ),
  );
}
