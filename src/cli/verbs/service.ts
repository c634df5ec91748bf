import { Option } from "commander";
import { driver, examples, type Frame, json, project, repeatable } from "./frame.ts";

export function addServe({ does, group, terminal }: Frame): void {
  const serve = group("serve");
  serve.command
    .option("-C, --project <dir>", "serve the project in this folder; repeatable (the nearest)", collected, ".")
    .option("--listen <address>", "listen on this HOST:PORT, or on unix:/PATH", "127.0.0.1:7420")
    .option("--remote", "allow an address that other machines reach; the connection is not encrypted")
    .addOption(
      repeatable("--host <name>", "answer requests for this name too, or for https://NAME[:PORT] of a proxy in front"),
    )
    .addOption(driver())
    .option(
      "--webhook <url>",
      "post to it when a question waits, and when a run or fleet ends; --webhook-key-file has the key of the signature",
    )
    .option("--webhook-key-file <file>", "sign with this key: one line of at least 32 characters")
    .option("--token-file <file>", "use the admin token in this file; print no token")
    .addOption(new Option("--log-level <level>", "log this much").choices(LEVELS).default("info"))
    .addHelpText("after", SERVE_HELP)
    .action(does(async (options) => (await import("../service/serve.ts")).serveVerb(options, terminal)));
  const token = serve.verb("token", "Make, list and remove the tokens of clients.");
  token
    .command("create")
    .description("Make a token, and print it. It is printed only now.")
    .helpOption("-h, --help", "print this help")
    .option("--name <name>", "call it this, in logs and in the audit trail", "client")
    .addOption(repeatable("--role <role>", "let it read, decide, run, all of that (admin), or metrics", "read"))
    .addOption(json())
    .addHelpText("after", examples("corral serve token create --name ci --role run"))
    .action(does(async (options) => (await import("../service/serve.ts")).createVerb(options, terminal)));
  token
    .command("ls")
    .description("List the tokens, without their values.")
    .helpOption("-h, --help", "print this help")
    .addOption(json())
    .action(does(async (options) => (await import("../service/serve.ts")).listTokensVerb(options, terminal)));
  token
    .command("rm <id>")
    .description("Remove a token. A running service refuses it from now on.")
    .helpOption("-h, --help", "print this help")
    .action(does(async (id) => (await import("../service/serve.ts")).removeTokenVerb(id, terminal)));
}

const LEVELS = ["trace", "debug", "info", "warn", "error", "silent"];

/** The first one takes the place of the default. */
function collected(value: string, before: string | readonly string[]): readonly string[] {
  return typeof before === "string" ? [value] : [...before, value];
}

const SERVE_HELP = `
At a terminal it prints a link to its page for the browser.

The first start makes a token with the role admin and prints
it. On a Unix socket none is needed: its mode is 0600.

Roles: read; decide (answers questions, applies changes);
run (starts and stops); admin (all, and other policies);
metrics (only GET /metrics).

Ctrl-C stops: runs end as cancelled, what they wrote waits,
and the next start continues the fleets.
${examples(
  "corral serve -C ~/papers -C ~/mail",
  "corral serve --listen unix:/run/user/1000/corral.sock",
  'curl -H "Authorization: Bearer $TOKEN" \\',
  "    http://127.0.0.1:7420/v1/runs",
)}`;

export function addLogin({ does, terminal, verb }: Frame): void {
  verb("login")
    .option("--name <name>", "call it so in --host and in corral context (the name of the host)")
    .option("--plain-http", "send the token to http: at another machine, where others on the way can read it")
    .addHelpText("after", LOGIN_HELP)
    .action(does(async (url, options) => (await import("../host/at-service.ts")).loginVerb(url, options, terminal)));
}

const LOGIN_HELP = `
The token is read from standard input, as in
\`corral login https://HOST < token\`, or asked for at a
terminal. It is kept in a file that only you can read. From
then on commands go to this service; --host local before a
verb is this machine.`;

export function addContext({ does, group, terminal }: Frame): void {
  const context = group("context");
  context
    .verb("ls", "List the services that you logged in to, and which one is in use.", { isDefault: true })
    .addOption(json())
    .action(does(async (options) => (await import("../host/at-service.ts")).listContextsVerb(options, terminal)));
  context
    .verb("use <name>", "Send commands to this service from now on; local is this machine.")
    .action(does(async (name) => (await import("../host/at-service.ts")).useContextVerb(name, terminal)));
  context
    .verb("rm <name>", "Forget a service and its token.")
    .action(does(async (name) => (await import("../host/at-service.ts")).removeContextVerb(name, terminal)));
}

export function addUp({ does, terminal, verb }: Frame): void {
  verb("up")
    .addOption(project())
    .option("--name <name>", "call its context so (up- and the name of the folder)")
    .option("--image <image>", "start this image of the service", "corral/service")
    .option("--port <port>", "let it answer at this port of 127.0.0.1", "7420")
    .option("--socket <path>", "give it this socket of Docker, as Docker's machine has it", "/var/run/docker.sock")
    .addHelpText("after", UP_HELP)
    .action(does(async (options) => (await import("../host/up.ts")).upVerb(options, terminal)));
}

const UP_HELP = `
The container controls Docker, so it may do what root may do
on Docker's machine. Only this machine reaches its port.
\`corral down\` removes it.`;

export function addDown({ does, terminal, verb }: Frame): void {
  verb("down")
    .addHelpText("after", "\nRuns end as cancelled. Files, images, and what the service remembers stay.")
    .action(does(async (name) => (await import("../host/up.ts")).downVerb(name, terminal)));
}
