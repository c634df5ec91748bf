import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";

export type SecretFile =
  | { readonly ok: true; readonly line: string }
  /** `fault` follows the name of the file, and repeats nothing of its content. */
  | { readonly ok: false; readonly fault: string };

/** What other users know is no secret, and what they can write is theirs. The owner's group may read it. */
const OF_OTHERS = 0o027;
const MAX_BYTES = 65_536;

/** The one line of a file. Blank space around it is not part of the secret. */
export async function readSecretFile(path: string, home: string | undefined): Promise<SecretFile> {
  const place = secretPlace(path, home);
  if (place === null) return { ok: false, fault: "is below a home that is not known" };
  const file = await open(place, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => null);
  if (file === null) return { ok: false, fault: "cannot be opened" };
  await using _ = file;
  const found = await file.stat();
  if (!found.isFile()) return { ok: false, fault: "is not a regular file" };
  if ((found.mode & OF_OTHERS) !== 0)
    return { ok: false, fault: "can be read or written by other users; run `chmod o=,g-w` on it" };
  if (found.size > MAX_BYTES) return { ok: false, fault: `is larger than ${MAX_BYTES} bytes` };
  const text = (await file.readFile("utf8")).trim();
  return /[\r\n]/.test(text) ? { ok: false, fault: "has more than one line" } : { ok: true, line: text };
}

/** The absolute path of a secret's file; null if it is below a home that is not known. */
export function secretPlace(path: string, home: string | undefined): string | null {
  if (!path.startsWith("~/")) return path;
  return home?.startsWith("/") ? join(home, path.slice(2)) : null;
}

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

/** The value of a secret by its name. Rejects with `SecretUnavailable`, whose message holds no part of it. */
export type SecretOf = (name: string, signal: AbortSignal) => Promise<string>;

/** Reads each secret when it is used, so that Corral does not keep it. `env`: Corral's own environment. */
export function namedSecrets(sources: ReadonlyMap<string, SecretSource>, env: Env): SecretOf {
  return async (name, signal) => {
    const source = sources.get(name);
    if (source === undefined) throw new SecretUnavailable(`there is no secret \`${name}\` in corral.yaml`);
    const secret = (await readSecret(source, env, signal)).trim();
    // Only this can be the value of a header, and a server repeats exactly what it was sent.
    if (!/^[\x20-\x7e]+$/.test(secret))
      throw new SecretUnavailable(`the secret \`${name}\` has characters that an HTTP header cannot contain`);
    return secret;
  };
}
