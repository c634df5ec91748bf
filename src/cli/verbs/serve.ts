import { Option } from "commander";
import type { Frame } from "./frame.ts";
import { driver, examples, json, repeatable } from "./options.ts";

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
