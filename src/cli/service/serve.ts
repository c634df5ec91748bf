import { isIP } from "node:net";
import { resolve } from "node:path";
import { readSecretFile } from "../../secrets/read-secret.ts";
import { type Address, isFurtherName, isLoopback } from "../../serve/http/admission.ts";
import { ListenError } from "../../serve/http/listener.ts";
import { type LogLevel, openLog } from "../../serve/logging/log.ts";
import { openService, ServiceRunningError } from "../../serve/service.ts";
import { MIN_KEY_CHARS, type WebhookOptions } from "../../serve/work/webhook.ts";
import { ROLES, type Role, Tokens } from "../../state/service/tokens.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { UsageError } from "../terminal/arguments.ts";
import { printList, printResult, say, stoppable, type Terminal, withoutControls } from "../terminal/terminal.ts";

export interface ServeOptions {
  readonly project: string | readonly string[];
  readonly listen: string;
  readonly remote?: boolean;
  readonly host: readonly string[];
  readonly logLevel: LogLevel;
  readonly tokenFile?: string;
  readonly webhook?: string;
  readonly webhookKeyFile?: string;
}

/** `corral serve`: projects over HTTP, until Ctrl-C. */
export async function serveVerb(options: ServeOptions, terminal: Terminal): Promise<number> {
  const { env, cwd, stdout, stderr } = terminal;
  const address = addressOf(options.listen, cwd);
  const isReachable = address.kind === "tcp" && !isLoopback(address.host);
  if (isReachable && options.remote !== true)
    throw new UsageError(
      `--listen ${options.listen}: other machines can reach this address, and the connection is not encrypted; put a proxy with TLS in front of a loopback address, or say --remote`,
    );
  for (const name of options.host)
    if (!isFurtherName(name))
      throw new UsageError(
        `--host takes a name, which clients ask for at the port of the service, or https://NAME[:PORT] of a proxy in front of it, not ${JSON.stringify(name)}`,
      );
  const stateDir = stateDirFrom(env);
  const pretty = stderr.isTTY === true;
  const write = (line: string): void => void stderr.write(pretty ? `${withoutControls(line.trimEnd())}\n` : line);
  if (options.tokenFile !== undefined) await adoptToken(options.tokenFile, { stateDir, env, cwd });
  const webhook = await webhookOf(options, { env, cwd });
  const log = openLog({ level: options.logLevel, pretty, write });
  using stop = stoppable(terminal, () => log.info("stopping: runs are cancelled; Ctrl-C again exits now"));
  const projects = [options.project].flat().map((dir) => resolve(cwd, dir));
  // Where no person reads it now, a token would only stay in a log.
  const isRead = stdout.isTTY === true;
  const how = {
    address,
    hosts: options.host,
    projects,
    stateDir,
    env,
    log,
    withPageToken: isRead,
    ...present({ webhook }),
  };
  await using service = await openService(how).catch((error: Error) => {
    if (error instanceof ListenError)
      throw new UsageError(`--listen ${options.listen}: ${error.message}`, { cause: error });
    if (error instanceof ServiceRunningError) throw new UsageError(error.message, { cause: error });
    throw error;
  });
  if (isReachable) say(terminal, "corral: other machines can reach this address, and tokens travel unencrypted");
  const tokens = new Tokens(stateDir);
  const needsToken = address.kind === "tcp" && (await tokens.list()).length === 0;
  const token = needsToken && isRead ? (await tokens.create("first", ["admin"])).value : null;
  stdout.write(`${urlOf(service.address)}\n`);
  if (service.pageToken !== null)
    stdout.write(
      `the page: ${urlOf(service.address)}/#token=${service.pageToken}\n(this link ends with the service)\n`,
    );
  if (token !== null) stdout.write(`token (admin, shown only now): ${token}\n`);
  else if (needsToken)
    say(
      terminal,
      "corral: there is no token, and none is printed without a terminal: make one with `corral serve token create --role admin`, or use --token-file",
    );
  log.info({ projects: service.projects }, "serving");
  await new Promise<void>((done) => {
    if (stop.signal.aborted) done();
    stop.signal.addEventListener("abort", () => done(), { once: true });
  });
  return 0;
}

/** A secret of Compose, or another file that a program made. @throws UsageError */
async function adoptToken(
  file: string,
  { stateDir, env, cwd }: { stateDir: string; env: Terminal["env"]; cwd: string },
) {
  const read = await readSecretFile(resolve(cwd, file), env.HOME);
  if (!read.ok) throw new UsageError(`--token-file ${file} ${read.fault}`);
  try {
    await new Tokens(stateDir).adopt("--token-file", ["admin"], read.line);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new UsageError(`--token-file ${file}: ${error.message}; \`echo corral_$(openssl rand -hex 32)\` makes one`);
  }
}

/** @throws UsageError */
async function webhookOf(
  { webhook, webhookKeyFile }: ServeOptions,
  { env, cwd }: Pick<Terminal, "env" | "cwd">,
): Promise<WebhookOptions | undefined> {
  if (webhook === undefined && webhookKeyFile === undefined) return undefined;
  if (webhook === undefined || webhookKeyFile === undefined)
    throw new UsageError(
      "--webhook and --webhook-key-file need each other; `(umask 077; openssl rand -hex 32 > webhook-key)` makes a key",
    );
  const url = URL.parse(webhook);
  const isHere = url?.protocol === "http:" && isLoopback(url.hostname.replace(/^\[|\]$/g, ""));
  if (url === null || (url.protocol !== "https:" && !isHere) || url.username !== "" || url.password !== "")
    throw new UsageError(
      `--webhook takes an https: URL without a user, or an http: one of this machine, such as http://127.0.0.1:8000/, not ${JSON.stringify(webhook)}`,
    );
  const read = await readSecretFile(resolve(cwd, webhookKeyFile), env.HOME);
  if (!read.ok) throw new UsageError(`--webhook-key-file ${webhookKeyFile} ${read.fault}`);
  if (read.line.length < MIN_KEY_CHARS)
    throw new UsageError(`--webhook-key-file ${webhookKeyFile}: the key needs at least ${MIN_KEY_CHARS} characters`);
  return { url, key: Buffer.from(read.line) };
}

function addressOf(text: string, cwd: string): Address {
  if (text.startsWith("unix:")) {
    const path = resolve(cwd, text.slice("unix:".length));
    // The kernel takes no longer one, and Node would cut it.
    if (text === "unix:" || Buffer.byteLength(path) > 107)
      throw new UsageError("--listen unix: takes a path of at most 107 bytes");
    return { kind: "unix", path };
  }
  const [, bracketed, plain, port = ""] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain ?? "";
  if (Number(port) > 65_535 || (host !== "localhost" && isIP(host) === 0))
    throw new UsageError(
      `--listen takes ADDRESS:PORT such as 127.0.0.1:7420, or unix:/PATH, not ${JSON.stringify(text)}`,
    );
  return { kind: "tcp", host, port: Number(port) };
}

function urlOf(address: Address): string {
  if (address.kind === "unix") return `unix:${address.path}`;
  return `http://${isIP(address.host) === 6 ? `[${address.host}]` : address.host}:${address.port}`;
}

interface JsonOption {
  readonly json?: boolean;
}

export async function createVerb(
  { name, role, json }: JsonOption & { readonly name: string; readonly role: readonly string[] },
  terminal: Terminal,
): Promise<number> {
  const roles = role.length === 0 ? ["read"] : role;
  const wrong = roles.find((one) => !ROLES.some((known) => known === one));
  if (wrong !== undefined)
    throw new UsageError(`--role must be one of ${ROLES.join(", ")}, not ${JSON.stringify(wrong)}`);
  const { token, value } = await new Tokens(stateDirFrom(terminal.env)).create(name, roles as Role[]).catch(asUsage);
  printResult(terminal, json, { ...token, token: value }, () => value);
  return 0;
}

export async function listTokensVerb({ json }: JsonOption, terminal: Terminal): Promise<number> {
  printList(terminal, json, await new Tokens(stateDirFrom(terminal.env)).list(), {
    head: ["ID", "NAME", "ROLES", "MADE"],
    rowOf: ({ id, name, roles, createdAt }) => [id, name, roles.join(" "), createdAt],
    none: "corral: no tokens; `corral serve token create` makes one",
  });
  return 0;
}

export async function removeTokenVerb(id: string, terminal: Terminal): Promise<number> {
  if (!(await new Tokens(stateDirFrom(terminal.env)).remove(id)))
    throw new UsageError(`there is no token ${JSON.stringify(id)}; \`corral serve token ls\` lists them`);
  return 0;
}

function asUsage(error: unknown): never {
  throw error instanceof RangeError ? new UsageError(error.message, { cause: error }) : error;
}
