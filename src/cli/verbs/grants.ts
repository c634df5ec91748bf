import type { Frame } from "./frame.ts";
import { examples, IDS, json } from "./options.ts";

export function addGrants({ does, group, terminal }: Frame): void {
  const grants = group("grants");
  grants
    .verb("ls", "List the grants of all running workers.", { isDefault: true })
    .addOption(json())
    .action(does(async (options) => (await import("../machine/grants.ts")).listGrantsVerb(options, terminal)));
  grants
    .verb("revoke <id>", "Revoke a grant. The worker does not get it again while its corral runs.")
    .addOption(json())
    .addHelpText("after", `\n${IDS}\n${examples("corral grants revoke latest")}`)
    .action(does(async (id, options) => (await import("../machine/grants.ts")).revokeVerb(id, options, terminal)));
}
