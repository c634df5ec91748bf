import { boundedText } from "../../json/parse-json.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, printList, say, type Terminal } from "../terminal/terminal.ts";
import { serviceAt } from "./at-service.ts";
import { Contexts, checkedAddress, contextNameFault, LOCAL } from "./contexts.ts";

const MAX_TOKEN_BYTES = 4096;

interface LoginOptions {
  readonly name?: string;
  readonly plainHttp?: boolean;
}

/** `corral login`: asks the service who the token is, and keeps both. The token is never printed, and comes by no argument, which others can see. */
export async function loginVerb(rawUrl: string, options: LoginOptions, terminal: Terminal): Promise<number> {
  const { plainHttp: plain = false } = options;
  const url = checkedAddress(rawUrl, plain);
  const name = options.name ?? nameFrom(url);
  const fault = contextNameFault(name);
  if (fault !== null) throw new UsageError(`--name ${printableLine(name, 80)}: ${fault}`);
  const contexts = await Contexts.open(terminal);
  const token = url.startsWith("unix:") ? null : await tokenFrom(terminal);
  if (token === "") return EXIT.cancelled;
  const caller = await serviceAt({ url, token }).client.call("host.caller", {});
  await contexts.put(name, { url, token, ...(plain ? { plain } : {}) });
  const roles = caller.roles.join(", ");
  say(terminal, `corral: ${name} is ${url}, as ${printableLine(caller.name, 80)} (${printableLine(roles, 200)})`);
  say(
    terminal,
    `corral: commands go there from now on; \`corral context use ${LOCAL}\` or --host ${LOCAL} is this machine`,
  );
  return 0;
}

function nameFrom(url: string): string {
  if (url.startsWith("unix:")) return "socket";
  const { hostname, port } = new URL(url);
  return `${hostname.replaceAll(/[^\w.-]/g, "").replace(/^[^\w]+/, "") || "host"}${port === "" ? "" : `-${port}`}`.slice(
    0,
    60,
  );
}

/** Empty: the person left the question. */
async function tokenFrom(terminal: Terminal): Promise<string> {
  const { stdin, stderr } = terminal;
  if (stdin.isTTY && stderr.isTTY) {
    const { isCancel, password } = await import("@clack/prompts");
    const typed = await password({ message: "Token of the service", input: stdin, output: stderr });
    return isCancel(typed) ? "" : checkedToken(typed);
  }
  const text = await boundedText(stdin, { maxBytes: MAX_TOKEN_BYTES });
  return checkedToken(text ?? "");
}

function checkedToken(text: string): string {
  const token = text.trim();
  if (/^[\x21-\x7e]{1,1000}$/.test(token)) return token;
  throw new UsageError(
    "standard input has no token: one line, such as `corral serve token create` prints on the machine of the service",
  );
}

interface JsonOption {
  readonly json?: boolean;
}

/** `corral context ls`. No token is shown. */
export async function listContextsVerb({ json }: JsonOption, terminal: Terminal): Promise<number> {
  const contexts = await Contexts.open(terminal);
  const { current } = contexts;
  const others = contexts.all().map(([name, { url, container }]) => ({ name, url, container: container ?? null }));
  const list = [{ name: LOCAL, url: null, container: null }, ...others].map((one) => ({
    ...one,
    isUsed: one.name === current,
  }));
  printList(terminal, json, list, {
    head: ["CONTEXT", "HOST", "IN USE"],
    rowOf: ({ name, url, isUsed }) => [name, printableLine(url ?? "this machine", 200), isUsed ? "yes" : ""],
    none: "",
  });
  return 0;
}

export async function useContextVerb(name: string, terminal: Terminal): Promise<number> {
  await (await Contexts.open(terminal)).use(name);
  return 0;
}

/** `corral context rm`: the service does not forget its token; who no longer trusts this machine removes it there. */
export async function removeContextVerb(name: string, terminal: Terminal): Promise<number> {
  const contexts = await Contexts.open(terminal);
  if (contexts.get(name)?.container !== undefined)
    throw new UsageError(`${name} was made by \`corral up\`: \`corral down ${name}\` removes it with its container`);
  await contexts.remove(name);
  say(terminal, "corral: the token still works at the service: `corral serve token rm` there ends it");
  return 0;
}
