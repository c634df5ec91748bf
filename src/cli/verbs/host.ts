import type { Frame } from "./frame.ts";
import { json, project } from "./options.ts";

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
