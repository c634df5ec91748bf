import type { Command } from "commander";
import { ServiceClient } from "../../client/client.ts";
import { transportTo } from "../../client/node.ts";
import { boundedText } from "../../json/parse-json.ts";
import { chosenId, noneText, RequestError, type RequestErrorCode } from "../../operations/request-error.ts";
import { shortQuestion } from "../../operations/wording/question-text.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { type AtService, EXIT, printList, say, type Terminal } from "../terminal/terminal.ts";
import { Contexts, checkedAddress, chosenContext, contextNameFault, type HostContext, LOCAL } from "./contexts.ts";

/** Options that mean the same over a host, beside `--json` and `--project`. What is in neither list is refused. */
const OVER_HOST: Readonly<Record<string, readonly string[]>> = {
  run: ["input", "attach", "tree", "stream", "raw", "policy", "continue"],
  map: [
    ...["over", "manifest", "format", "fleet", "attach", "allowRead", "allowWrite", "input", "key", "concurrency"],
    ...["machines", "needs", "priority", "reuse", "retries", "maxFailures", "timeout", "allowEmpty", "cache"],
    ...["policy", "events", "notify", "junit"],
  ],
  convert: ["to", "out", "passwordFile", "ocr", "dpi", "timeout", "memory", "disk", "events", "notify"],
  "fleet ls": ["limit"],
  "fleet show": [],
  "fleet logs": ["failed", "stderr", "raw"],
  "fleet machines": [],
  "fleet resume": ["events", "notify", "junit"],
  "fleet retry": ["failed", "events", "notify", "junit"],
  "fleet cancel": [],
  "fleet results": ["jsonl", "csv", "status"],
  "fleet report": ["html", "junit", "output"],
  "runs ls": ["worker", "status", "limit", "allProjects"],
  "runs show": [],
  "runs logs": ["stdout", "stderr", "service", "lines", "follow", "raw"],
  "runs stop": [],
  "workers ls": [],
  "session start": ["name", "idle", "endAfter", "policy", "port", "from"],
  "session ls": [],
  "session exec": ["interactive", "tty", "background", "cwd", "timeout", "raw"],
  "session shell": [],
  "session logs": ["follow", "raw"],
  "session signal": [],
  "session wait": [],
  "session put": [],
  "session get": ["maxBytes"],
  "session ports": [],
  "session forward": [],
  "session pause": [],
  "session resume": [],
  "session snapshot": [],
  "session restore": [],
  "session diff": [],
  "session fork": ["name", "idle", "endAfter"],
  "session snapshots": ["rm"],
  "session stop": ["discard"],
  tool: ["worker", "policy"],
  explain: [],
  check: [],
  doctor: [],
  ps: [],
  du: [],
  "images ls": [],
  audit: ["run", "type", "since", "limit"],
  "approvals ls": ["decided"],
  "approvals show": [],
  "approvals decide": ["digest", "directory"],
  "changes ls": ["allProjects", "fleet"],
  "changes show": ["fleet"],
  "changes diff": ["fleet"],
  "changes apply": ["all", "fleet", "only", "digest", "yes"],
  "changes discard": ["all", "fleet", "yes"],
  "grants ls": [],
  "grants add": [],
  "grants revoke": [],
};

/** Of files and of the user's own machine: whatever host is in use, they are done here. */
const HERE: ReadonlySet<string> = new Set([
  "login",
  "context ls",
  "context use",
  "context rm",
  "up",
  "down",
  "schema",
  "completion",
  "complete",
  "init",
  "serve",
  "serve token create",
  "serve token ls",
  "serve token rm",
]);

/**
 * The service of this command, or null for this machine. `said`: `--host`.
 *
 * @throws UsageError
 */
export async function serviceFor(
  said: string | undefined,
  { corral, command }: { readonly corral: Command; readonly command: Command },
  terminal: Pick<Terminal, "env">,
): Promise<AtService | null> {
  const verb = verbOf(command);
  // A wrong list of contexts, or a host that is no more, keeps nobody from correcting it.
  if (HERE.has(verb)) return null;
  const context = await chosenContext(said, terminal);
  if (context === null) return null;
  const isSaid = (name: string): boolean => command.getOptionValueSource(name) === "cli";
  refuseHere(verb, Object.keys(command.opts()).filter(isSaid), context.url);
  const project = [command, corral].find((one) => one.getOptionValueSource("project") === "cli");
  return serviceAt(context, project?.getOptionValue("project"));
}

/** `runs ls`. */
function verbOf(command: Command): string {
  const names: string[] = [];
  for (let one: Command | null = command; one !== null && one.parent !== null; one = one.parent)
    names.unshift(one.name());
  return names.join(" ");
}

export function serviceAt({ url, token }: HostContext, project?: string): AtService {
  return { client: new ServiceClient(transportTo(url), token), url, token, ...present({ project }) };
}

/** @throws UsageError for a verb, or an option that the user gave (`said`), that only the machine itself has */
function refuseHere(verb: string, said: readonly string[], url: string): void {
  const options = Object.hasOwn(OVER_HOST, verb) ? OVER_HOST[verb] : undefined;
  const here = `--host local is this machine, and ${url} is in use`;
  if (options === undefined)
    throw new UsageError(`\`corral ${verb}\` is no operation of the service, and works on the machine itself: ${here}`);
  const other = said.find((name) => !["json", "project", ...options].includes(name));
  if (other === undefined) return;
  const option = `--${other.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  throw new UsageError(`${option} of \`corral ${verb}\` works on the machine itself alone: ${here}`);
}

/** What a service answers is what the contract describes: the compiler compares it there. Here it gets the type that the verb knows it by. */
export function known<Shape>(answer: unknown): Shape {
  return answer as Shape;
}

const WHOLE_ID = /^[0-9a-f]{12}(\.\d{1,6})?$/;

/**
 * The id that a user means, as on the machine itself: a whole one, a beginning, or `latest`.
 *
 * @throws RequestError
 */
export async function idMeant<One extends { readonly id: string }>(
  asked: string,
  code: RequestErrorCode,
  kind: string,
  newestFirst: () => Promise<readonly One[]>,
  aboutOf: (one: One) => string,
): Promise<string> {
  if (WHOLE_ID.test(asked)) return asked;
  const list = (await newestFirst()).map((one) => ({ id: one.id, about: aboutOf(one) }));
  return chosenId(asked, list, () => new RequestError(code, asked, noneText(kind, asked)));
}

/** The project of operations that need one. @throws UsageError */
export async function projectMeant({ client, project, url }: AtService): Promise<string> {
  if (project !== undefined) return project;
  const { projects } = await client.call("projects.list", {});
  const [only, ...others] = projects;
  if (only === undefined) throw new UsageError(`the service at ${url} has no project`);
  if (others.length === 0) return only.name;
  throw new UsageError(
    `the service at ${url} has several projects: name one with --project: ${projects.map(({ name }) => name).join(", ")}`,
  );
}

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

const LOOK_MS = 1000;

/** Says what waits for an answer, until it is disposed of: a command that no rule decides would look as if it did nothing. */
export function toldQuestions(client: ServiceClient, session: string, terminal: Terminal): Disposable {
  const told = new Set<string>();
  let isOver = false;
  const look = async (): Promise<void> => {
    // What is between here and the service may be gone for a while.
    const { approvals } = await client.call("approvals.list", { root: session }).catch(() => ({ approvals: [] }));
    for (const { id, question } of approvals) {
      if (told.has(id) || isOver) continue;
      told.add(id);
      const what = `Worker ${question.worker} asks to ${shortQuestion(known(question))}`;
      say(terminal, `corral: ${printableLine(what, 200)}. Answer with: corral approvals decide ${id}`);
    }
  };
  const timer = setInterval(() => void look(), LOOK_MS).unref();
  return {
    [Symbol.dispose]() {
      isOver = true;
      clearInterval(timer);
    },
  };
}
