import { execFile } from "node:child_process";
import type { GitRepo } from "../project/git-repos.ts";
import { GitRefusal } from "./refusal.ts";
import { SYSTEM_PATH } from "./settings.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** What one git that speaks to a remote is given besides: a secret stands in its environment alone. */
export interface Access {
  readonly settings: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The text without the secret, in whatever form git may have repeated it. */
  redact(text: string): string;
}

const TIMEOUT_MS = 30_000;
const MAX_SECRET_CHARS = 10_000;
/** Run by git with the shell; both words come from the environment, so that no other process sees them. */
const HELPER =
  '!f() { test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "$CORRAL_GIT_USER" "$CORRAL_GIT_SECRET"; }; f';
/** Hosts that take a token do not look at the name, and want one. */
const DEFAULT_USER = "git";

/** Looked up for each use, so that Corral keeps no secret. `env`: Corral's own environment, which only a face can read. */
export async function accessTo(repo: GitRepo, env: Env, signal: AbortSignal): Promise<Access> {
  if (repo.protocol === "ssh") {
    const socket = env.SSH_AUTH_SOCK;
    return { settings: [], env: socket === undefined ? {} : { SSH_AUTH_SOCK: socket }, redact: (text) => text };
  }
  if (repo.credentials === null) return { settings: [], env: {}, redact: (text) => text };
  const secret = await secretOf(repo, env, signal);
  const { origin, username } = new URL(repo.url);
  const user = username === "" ? DEFAULT_USER : decodeURIComponent(username);
  const encoded = Buffer.from(`${user}:${secret}`).toString("base64");
  const forms = [secret, encodeURIComponent(secret), encoded];
  return {
    settings: [`credential.${origin}.helper=${HELPER}`],
    env: { CORRAL_GIT_USER: user, CORRAL_GIT_SECRET: secret },
    redact: (text) => forms.reduce((clean, form) => clean.replaceAll(form, "[secret]"), text),
  };
}

async function secretOf({ name, credentials }: GitRepo, env: Env, signal: AbortSignal): Promise<string> {
  const refuse = (detail: string): GitRefusal =>
    new GitRefusal("GIT_CREDENTIALS", `The credentials of the repository ${name} are not to be had.`, detail);
  if (credentials?.kind === "env") {
    const secret = env[credentials.name] ?? "";
    if (!isSecret(secret)) throw refuse(`the variable ${credentials.name} is not set, or holds no password or token`);
    return secret;
  }
  const { program = "", args = [] } = credentials ?? {};
  // What a program says when it fails may hold half of a secret: only how it ended is told.
  const printed = await printedBy(program, args, env, signal).catch((error: NodeJS.ErrnoException) => {
    signal.throwIfAborted();
    throw refuse(`the program ${program} that prints them failed (${error.code ?? "killed"})`);
  });
  const [secret = ""] = printed.split(/\r?\n/);
  if (!isSecret(secret)) throw refuse(`the program ${program} printed no password or token`);
  return secret;
}

/** A line break would be a second answer to git. */
function isSecret(text: string): boolean {
  return text !== "" && text.length <= MAX_SECRET_CHARS && !/\p{Cc}/u.test(text);
}

function printedBy(program: string, args: readonly string[], env: Env, signal: AbortSignal): Promise<string> {
  const options = { cwd: "/", env: { ...env, PATH: SYSTEM_PATH }, timeout: TIMEOUT_MS, maxBuffer: 65_536, signal };
  return new Promise((resolve, reject) => {
    const child = execFile(program, [...args], options, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
    child.stdin?.on("error", () => {}).end();
  });
}
