import { execFile } from "node:child_process";

/** Corral's own environment, which only a face can read. */
export type Env = Readonly<Record<string, string | undefined>>;

/** Why a secret is not to be had. Nothing of the secret, nor of what a program said, is in it. */
export class SecretUnavailable extends Error {
  override readonly name = "SecretUnavailable";
}

/** Where the system's own programs are: a relative name must not lead into a project. */
export const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const TIMEOUT_MS = 30_000;
const MAX_SECRET_CHARS = 10_000;

/** Looked up for each use, so that Corral keeps no secret. Rejects with {@link SecretUnavailable}. */
export async function readSecret(source: SecretSource, env: Env, signal: AbortSignal): Promise<string> {
  if (source.kind === "env") {
    const secret = env[source.name] ?? "";
    if (!isSecret(secret))
      throw new SecretUnavailable(`the variable ${source.name} is not set, or holds no password, token or key`);
    return secret;
  }
  const { program, args } = source;
  // What a program says when it fails may hold half of a secret: only how it ended is told.
  const printed = await printedBy(program, args, env, signal).catch((error: NodeJS.ErrnoException) => {
    signal.throwIfAborted();
    throw new SecretUnavailable(`the program ${program} that prints it failed (${error.code ?? "killed"})`);
  });
  const [secret = ""] = printed.split(/\r?\n/);
  if (!isSecret(secret)) throw new SecretUnavailable(`the program ${program} printed no password, token or key`);
  return secret;
}

/** A line break would be a second header, or a second answer to git. */
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

/** Where a secret is: a variable of Corral's own environment, or the first line that a program prints. */
export type SecretSource =
  | { readonly kind: "env"; readonly name: string }
  | { readonly kind: "command"; readonly program: string; readonly args: readonly string[] };
