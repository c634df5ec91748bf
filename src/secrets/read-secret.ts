import { execFile } from "node:child_process";
import { readSecretFile } from "./secret-file.ts";

/** Corral's own environment. Only the command line, the servers and the library read it, and pass it on. */
export type Env = Readonly<Record<string, string | undefined>>;

/** Why a secret is not available. The message holds no part of the secret and no output of a program. */
export class SecretUnavailable extends Error {
  override readonly name = "SecretUnavailable";
}

/** The directories of the system's programs. It has no relative path, which could lead into a project. */
export const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const TIMEOUT_MS = 30_000;
const MAX_SECRET_CHARS = 10_000;

/** Reads the secret for each use, so that Corral does not keep it. Rejects with {@link SecretUnavailable}. */
export async function readSecret(source: SecretSource, env: Env, signal: AbortSignal): Promise<string> {
  if (source.kind === "env") {
    const secret = env[source.name] ?? "";
    if (!isSecret(secret))
      throw new SecretUnavailable(
        `the environment variable ${source.name} is not set, or is not a password, token or key`,
      );
    return secret;
  }
  if (source.kind === "file") {
    const read = await readSecretFile(source.path, env.HOME);
    if (!read.ok) throw new SecretUnavailable(`the file ${source.path} ${read.fault}`);
    if (!isSecret(read.line)) throw new SecretUnavailable(`the file ${source.path} has no password, token or key`);
    return read.line;
  }
  const { program, args } = source;
  // The output of a failed program may hold a part of a secret, so only its status is reported.
  const printed = await printedBy(program, args, env, signal).catch((error: NodeJS.ErrnoException) => {
    signal.throwIfAborted();
    throw new SecretUnavailable(`the program ${program}, which prints it, failed (${error.code ?? "killed"})`);
  });
  const [secret = ""] = printed.split(/\r?\n/);
  if (!isSecret(secret)) throw new SecretUnavailable(`the program ${program} printed no password, token or key`);
  return secret;
}

/** A line break could inject a second header, or a second answer to git. */
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

/** The source of a secret: a variable of Corral's environment, the one line of a file, or the first line that a program prints. */
export type SecretSource =
  | { readonly kind: "env"; readonly name: string }
  /** Absolute, or below the home of Corral's user: `~/…`. */
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "command"; readonly program: string; readonly args: readonly string[] };
