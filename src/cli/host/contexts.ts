import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import { printableLine } from "../../text/visible.ts";
import { configFile, UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** The name of no service: what this machine does itself. */
export const LOCAL = "local";

/** A service that a user logged in to. */
export interface HostContext {
  /** `https://HOST`, `http://127.0.0.1:PORT` or `unix:/PATH`. */
  readonly url: string;
  /** Null: of a socket, which needs none. */
  readonly token: string | null;
  /** `http:` to another machine was agreed to. */
  readonly plain?: boolean;
  /** `corral up` made it, and this is the name of its container. */
  readonly container?: string;
  /** What that was made from. */
  readonly image?: string;
}

interface Kept {
  /** Absent: this machine. */
  readonly current?: string;
  readonly contexts: Readonly<Record<string, HostContext>>;
}

const MAX_BYTES = 1024 ** 2;
const MAX_CONTEXTS = 100;

/** The services that this user knows, with their tokens: one file that no other user can read. */
export class Contexts {
  readonly #file: string;
  #kept: Kept;

  private constructor(file: string, kept: Kept) {
    this.#file = file;
    this.#kept = kept;
  }

  static async open({ env }: Pick<Terminal, "env">): Promise<Contexts> {
    const file = configFile(env);
    return new Contexts(file, await keptIn(file));
  }

  get current(): string {
    return this.#kept.current ?? LOCAL;
  }

  all(): [name: string, context: HostContext][] {
    return Object.entries(this.#kept.contexts);
  }

  get(name: string): HostContext | undefined {
    return Object.hasOwn(this.#kept.contexts, name) ? this.#kept.contexts[name] : undefined;
  }

  /** Adds one, or takes the place of another, and uses it from now on. */
  async put(name: string, context: HostContext): Promise<void> {
    const contexts = { ...this.#kept.contexts, [name]: context };
    if (Object.keys(contexts).length > MAX_CONTEXTS)
      throw new UsageError(`there are ${MAX_CONTEXTS} contexts: remove one with \`corral context rm NAME\``);
    await this.#save({ current: name, contexts });
  }

  /** @throws UsageError for one that there is not */
  async use(name: string): Promise<void> {
    if (name === LOCAL) return await this.#save({ contexts: this.#kept.contexts });
    this.#known(name);
    await this.#save({ current: name, contexts: this.#kept.contexts });
  }

  /** @throws UsageError for one that there is not */
  async remove(name: string): Promise<HostContext> {
    const removed = this.#known(name);
    const contexts = Object.fromEntries(this.all().filter(([other]) => other !== name));
    const { current } = this.#kept;
    await this.#save(current === undefined || current === name ? { contexts } : { current, contexts });
    return removed;
  }

  #known(name: string): HostContext {
    const context = this.get(name);
    if (context !== undefined) return context;
    throw new UsageError(`there is no context ${printableLine(name, 80)}; \`corral context ls\` lists them`);
  }

  /** Whole or not at all, and never readable for others, not even for a moment. */
  async #save(kept: Kept): Promise<void> {
    await mkdir(dirname(this.#file), { recursive: true, mode: 0o700 });
    const written = `${this.#file}.${randomBytes(6).toString("hex")}`;
    const { O_CREAT, O_EXCL, O_WRONLY } = constants;
    const file = await open(written, O_CREAT | O_EXCL | O_WRONLY, 0o600);
    try {
      await file.writeFile(`${JSON.stringify(kept, null, 2)}\n`);
      await file.sync();
      await file.close();
      await rename(written, this.#file);
    } catch (error) {
      await file.close();
      await rm(written, { force: true });
      throw error;
    }
    this.#kept = kept;
  }
}

async function keptIn(path: string): Promise<Kept> {
  let file: Awaited<ReturnType<typeof open>>;
  try {
    file = await open(path, "r");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return { contexts: {} };
    throw new UsageError(`${path} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  try {
    const { mode, size } = await file.stat();
    if (process.platform !== "win32" && (mode & 0o077) !== 0)
      throw new UsageError(`${path} has tokens, and other users may read it: chmod 600 it, and make new tokens`);
    if (size > MAX_BYTES) throw new UsageError(`${path} has more than ${MAX_BYTES} bytes`);
    return parseContexts(await file.readFile("utf8"), path);
  } finally {
    await file.close();
  }
}

/** @throws UsageError */
export function parseContexts(text: string, path: string): Kept {
  const wrong = (): UsageError => new UsageError(`${path} is no list of contexts: correct or remove it`);
  let raw: unknown;
  try {
    raw = JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch {
    throw wrong();
  }
  const { current, contexts } = Object(raw) as { current?: unknown; contexts?: unknown };
  const entries = Object.entries(Object(contexts) as Record<string, unknown>);
  const isText = (value: unknown): boolean => typeof value === "string";
  for (const [name, context] of entries) {
    const { url, token, plain, container, image } = Object(context) as Record<string, unknown>;
    const isWhole = isText(url) && (token === null || isText(token));
    if (!isWhole || ![undefined, true, false].includes(plain as boolean)) throw wrong();
    const isMade = [container, image].every((one) => one === undefined || isText(one));
    if (contextNameFault(name) !== null || !isMade) throw wrong();
  }
  if (current !== undefined && !entries.some(([name]) => name === current)) throw wrong();
  return raw as Kept;
}

/** Null: it is one. */
export function contextNameFault(name: string): string | null {
  if (name === LOCAL) return `${LOCAL} is this machine`;
  return /^[\w][\w.-]{0,62}$/.test(name) ? null : "a name has letters, digits, _, - and .";
}

/** A context can be named in place of the URL that it has. */
function isAddress(host: string): boolean {
  return /^(https?:\/\/|unix:)/.test(host);
}

/**
 * The address without what must not be in it. `plain`: a person said that the token may be read on the way.
 *
 * @throws UsageError
 */
export function checkedAddress(raw: string, plain: boolean): string {
  if (raw.startsWith("unix:/")) return raw;
  const url = URL.parse(raw);
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  if (url === null || !isHttp || url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw new UsageError(
      `a host is https://NAME[:PORT], http://127.0.0.1:PORT or unix:/PATH, without a user, a token or a query, not ${printableLine(withoutUser(raw), 200)}`,
    );
  if (url.protocol === "http:" && !plain && !isLoopbackName(url.hostname))
    throw new UsageError(
      `${url.origin} is not encrypted, and whoever is on the way could read the token: use https, or an SSH tunnel to 127.0.0.1, or say \`corral login --plain-http\``,
    );
  return `${url.origin}${url.pathname.replace(/\/+$/, "")}`;
}

/** What is said about a wrong address has no password of it. */
function withoutUser(raw: string): string {
  return raw.replace(/\/\/[^/@]*@/, "//…@").replace(/[?#].*$/s, "?…");
}

function isLoopbackName(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "");
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}

/** The context that a command uses, or null for this machine: `--host`, else CORRAL_HOST, else the one in use. @throws UsageError */
export async function chosenContext(
  said: string | undefined,
  terminal: Pick<Terminal, "env">,
): Promise<HostContext | null> {
  const { env } = terminal;
  const contexts = await Contexts.open(terminal);
  const asked = said ?? (env.CORRAL_HOST || contexts.current);
  if (asked === LOCAL) return null;
  if (!isAddress(asked)) {
    const context = contexts.get(asked);
    if (context !== undefined) return { ...context, url: checkedAddress(context.url, context.plain ?? false) };
    throw new UsageError(
      `--host takes a URL, a name of \`corral context ls\`, or ${LOCAL} for this machine, not ${printableLine(withoutUser(asked), 80)}`,
    );
  }
  const known = contexts.all().find(([, { url }]) => url === asked.replace(/\/+$/, ""))?.[1];
  const url = checkedAddress(asked, known?.plain ?? false);
  return { ...known, url, token: env.CORRAL_TOKEN || (known?.token ?? null) };
}
