import { approve, askElsewhere, driver, examples, type Frame, json, policy, project, raw } from "./frame.ts";
import { save, withoutProject } from "./without-project.ts";

export function addTool({ does, terminal, verb }: Frame): void {
  const tool = verb("tool").option("--worker <name>", "use the sandbox of this worker");
  withoutProject(tool.addOption(project()))
    .addOption(policy())
    .addOption(approve())
    .addOption(askElsewhere())
    .addOption(driver())
    .addOption(json("print the whole answer as JSON"))
    .addHelpText("after", TOOL_HELP)
    .action(
      does(async (name, input, options) => {
        const { service } = terminal;
        if (service === undefined)
          return await (await import("../session/tool.ts")).toolVerb(name, input, options, terminal);
        const { toolAt } = await import("../session/remote-tool.ts");
        const { saidByService } = await import("../session/held.ts");
        return await saidByService(terminal, () => toolAt(service, name, input, options, terminal));
      }),
    );
}

const TOOL_HELP = `
The input is JSON, @FILE, or - for standard input. The
answer is on standard output, a refusal on standard error.

Exit status: 0, or 126 refused or denied, 2 wrong usage. For
exec, the same as corral run.
${examples(
  `corral tool list_files '{"path": "/"}' --worker triage`,
  `corral tool list_files '{"path": "/inbox"}' --ro inbox`,
  `corral tool exec '{"command": "wc -l /inbox/*"}' \\`,
  "    --worker triage --json",
)}`;

export function addShell({ does, terminal, verb }: Frame): void {
  const shell = verb("shell");
  withoutProject(shell.addOption(project()))
    .addOption(save())
    .addOption(policy())
    .addOption(askElsewhere())
    .addOption(driver())
    .addOption(raw())
    .addHelpText(
      "after",
      `${SHELL_HELP}${examples("corral shell extract", "corral shell --image corral/documents --ro inbox", "echo 'ls /' | corral shell extract")}`,
    )
    .action(
      does(async (worker, options) => (await import("../session/shell.ts")).shellVerb(worker, options, terminal)),
    );
}

const SHELL_HELP = `
At a terminal, programs of the shell draw on the whole of it,
as editors need. They reach neither its title nor the
clipboard, unless with --raw. Its modes are reset at the end.
For output that you do not trust, use \`corral run\`, or give
the commands on standard input: then control sequences are
shown as text.

Exit status: the shell's own.
`;

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
