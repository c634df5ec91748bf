import { readFileSync } from "node:fs";
import type pg from "pg";
import { QueueError } from "../model/queue.ts";

/** Modes of TLS. With `prefer` and `allow` an attacker in the network could switch TLS off: they are refused. */
const MODES = ["disable", "require", "verify-ca", "verify-full"];
const MAX_PASSWORD = 1000;

/**
 * What the driver needs, from an address like `postgres://user:password@host:5432/database?sslmode=verify-full`. TLS always
 * verifies the server's certificate; `sslrootcert` names the file of its authority. Without `sslmode` another host needs TLS.
 *
 * @throws QueueError if it is no such address
 */
export function settingsOf(url: string): pg.ClientConfig {
  const parsed = parsedUrl(url);
  const { searchParams } = parsed;
  const mode = searchParams.get("sslmode");
  const rootCert = searchParams.get("sslrootcert");
  const socket = searchParams.get("host");
  for (const name of searchParams.keys())
    if (!["sslmode", "sslrootcert", "host", "passwordfile"].includes(name))
      throw new QueueError(
        `the address of the queue has an unknown parameter ${name}. Known: host, passwordfile, sslmode, sslrootcert`,
      );
  if (mode !== null && !MODES.includes(mode))
    throw new QueueError(`sslmode of the queue is ${mode}. Use one of ${MODES.join(", ")}`);
  const host = socket ?? (decodeURIComponent(parsed.hostname.replace(/^\[|\]$/g, "")) || "localhost");
  return {
    host,
    ...(parsed.port === "" ? {} : { port: Number(parsed.port) }),
    ...(parsed.username === "" ? {} : { user: decodeURIComponent(parsed.username) }),
    ...passwordOf(parsed),
    ...(parsed.pathname.length > 1 ? { database: decodeURIComponent(parsed.pathname.slice(1)) } : {}),
    ssl: tlsOf(mode ?? (isThisMachine(host) && rootCert === null ? "disable" : "verify-full"), rootCert),
  };
}

/** No other machine can listen in: a socket, or a loopback address. */
function isThisMachine(host: string): boolean {
  return host.startsWith("/") || /^(localhost|127(\.\d+){3}|::1)$/i.test(host);
}

/** Whether what goes to this queue can be read and changed on its way. */
export function isOpenToOthers(url: string): boolean {
  const { host = "", ssl } = settingsOf(url);
  return ssl === false && !isThisMachine(host);
}

function tlsOf(mode: string, rootCert: string | null): pg.ClientConfig["ssl"] {
  if (mode === "disable") return false;
  const ca = rootCert === null ? {} : { ca: readCertificate(rootCert) };
  // As libpq has it, `verify-ca` accepts any name that the authority signed.
  return { rejectUnauthorized: true, ...ca, ...(mode === "verify-ca" ? { checkServerIdentity: () => undefined } : {}) };
}

/** Of the address itself, or of the file that it names, without its last line feed. */
function passwordOf({ password, searchParams }: URL): { readonly password?: string } {
  const file = searchParams.get("passwordfile");
  if (file === null) return password === "" ? {} : { password: decodeURIComponent(password) };
  if (password !== "")
    throw new QueueError("the address of the queue has a password and a passwordfile: use one of them");
  let text: string;
  try {
    text = readFileSync(file, "utf8").replace(/\r?\n$/, "");
  } catch (cause) {
    throw new QueueError(`passwordfile of the queue cannot be read: ${(cause as Error).message}`, { cause });
  }
  if (text !== "" && text.length <= MAX_PASSWORD) return { password: text };
  throw new QueueError(`passwordfile of the queue must have one line of 1 to ${MAX_PASSWORD} characters: ${file}`);
}

function readCertificate(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new QueueError(`sslrootcert of the queue cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** The server as messages name it: without user and password. */
export function serverText(url: string): string {
  const { hostname, port, pathname, searchParams } = parsedUrl(url);
  const host = searchParams.get("host") ?? (decodeURIComponent(hostname) || "localhost");
  return `${host}:${port || "5432"}${pathname}`;
}

/** The text is in no message: it may have a password. */
function parsedUrl(url: string): URL {
  const wrong = "the address of the queue is no `postgres://user@host:port/database`";
  if (!URL.canParse(url)) throw new QueueError(wrong);
  const parsed = new URL(url);
  if (!["postgres:", "postgresql:"].includes(parsed.protocol)) throw new QueueError(wrong);
  return parsed;
}
