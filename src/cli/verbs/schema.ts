import { FILES_OF, SCHEMA_KINDS } from "../../declarations/editor/kinds.ts";
import { COMPLETED_SHELLS } from "../shell/complete.ts";
import type { Frame } from "./frame.ts";
import { examples, oneOf } from "./options.ts";

export function addSchema({ does, terminal, verb }: Frame): void {
  oneOf(verb("schema"), "the kind of file", SCHEMA_KINDS)
    .option("--write <folder>", "write all of them into this folder, and print the settings for editors")
    .addHelpText("after", SCHEMA_HELP)
    .action(does(async (kind, options) => (await import("../shell/schema.ts")).schemaVerb(kind, options, terminal)));
}

const SCHEMA_HELP = `
Kinds: ${SCHEMA_KINDS.map((kind) => `${kind} (${FILES_OF[kind]})`).join(",\n  ")}
${examples("corral schema project | jq .properties.approval", "corral schema --write .schemas")}`;

export function addCompletion({ does, terminal, verb }: Frame): void {
  oneOf(verb("completion"), "the shell", COMPLETED_SHELLS)
    .addHelpText(
      "after",
      examples('eval "$(corral completion bash)"', "corral completion fish > ~/.config/fish/completions/corral.fish"),
    )
    .action(does(async (shell) => (await import("../shell/complete.ts")).completionVerb(shell, terminal)));

  // The scripts call it; it is not for people.
  verb("complete").action(
    does(async (shell, words, _, command) =>
      (await import("../shell/complete.ts")).completeVerb(shell, words, command.parent, terminal),
    ),
  );
}
