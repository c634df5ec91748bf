import type { Frame } from "./frame.ts";
import { approve, askElsewhere, driver, examples, policy, project } from "./options.ts";
import { save, withoutProject } from "./without-project.ts";

export function addMcp({ does, terminal, verb }: Frame): void {
  const mcp = verb("mcp").option("--worker <name>", "give the client the sandbox of this worker");
  withoutProject(mcp.addOption(project()))
    .addOption(save())
    .addOption(policy())
    .addOption(approve())
    .addOption(askElsewhere())
    .addOption(driver())
    .option(
      "--http [port]",
      "serve over HTTP on this machine's loopback, not standard input and output; 0 takes any port",
    )
    .option("--no-roots", "show all of the worker's files, even if the client's roots contain less")
    .addHelpText("after", MCP_HELP)
    .action(does(async (options) => (await import("../session/mcp.ts")).mcpVerb(options, terminal)));
}

const MCP_HELP = `
The client starts this command and speaks to it on standard
input and output. In the client's configuration:

  { "mcpServers": { "desk": { "command": "corral",
      "args": ["mcp", "--ro", "/home/me/papers",
               "--rw", "/home/me/notes"] } } }

With a project: --project FOLDER --worker NAME in place of the
folders. Commands of the client run in a container under the
policy untrusted, without a network.

With --http it prints its URL and a token on standard error.
CORRAL_MCP_TOKEN sets the token.

The project's rules decide first. In the mode interactive,
the client is asked if it can show forms. If it cannot, the
user at the terminal of --http is asked, or it is denied.
${examples(
  "claude mcp add notes -- \\",
  "    corral mcp --project ~/notes --worker notes",
  "CORRAL_MCP_TOKEN=$(openssl rand -hex 32) \\",
  "    corral mcp --worker notes --http 7801",
)}`;
