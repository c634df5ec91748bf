import { readFile } from "node:fs/promises";

/** Where Linux distributions keep the certificates that the machine trusts, all in one file. The first that exists is read. */
const SYSTEM_STORES = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/ca-bundle.pem",
  "/etc/ssl/cert.pem",
] as const;

/**
 * The certificates that this machine trusts for TLS, as PEM: those of Node, and those of the system or of `SSL_CERT_FILE`, and of
 * `NODE_EXTRA_CA_CERTS`. A file that cannot be read adds nothing: then less is trusted.
 */
export async function trustedRoots(env: Readonly<Record<string, string | undefined>>): Promise<readonly string[]> {
  const { rootCertificates } = await import("node:tls");
  const { SSL_CERT_FILE: instead, NODE_EXTRA_CA_CERTS: extra } = env;
  const system = await firstOf(instead ? [instead] : SYSTEM_STORES);
  const further = extra ? await firstOf([extra]) : [];
  return [...rootCertificates, ...system, ...further];
}

async function firstOf(files: readonly string[]): Promise<string[]> {
  for (const file of files) {
    const text = await readFile(file, "utf8").catch(() => null);
    if (text !== null) return [text];
  }
  return [];
}
