import { domainToASCII } from "node:url";
import { parseTarget } from "../../sandbox/network/rule.ts";

/** A domain name has fewer characters than this, in whatever alphabet. */
const MAX_CHARACTERS = 300;

/**
 * One host and port in the form in which rules name it, or what is wrong with the text. Upper case, a dot at the end and names
 * outside of ASCII are other ways to write the same host, so a person is asked about it once, and by the name that is looked up.
 */
export function parseAskedHost(
  raw: string,
): { readonly ok: true; readonly to: string } | { readonly ok: false; readonly reason: string } {
  const parts = /^([^\s/@]+):([0-9]+)$/u.exec(raw);
  if (raw.length > MAX_CHARACTERS || parts === null)
    return { ok: false, reason: "write one host and its port, as in `api.example.org:443`" };
  const [, name = "", port = ""] = parts;
  const ascii = isPlain(name) ? name : domainToASCII(name);
  const parsed = parseTarget(`${ascii.replace(/\.$/, "")}:${port}`);
  if (!parsed.ok) return parsed;
  const { host, wildcard } = parsed.target;
  if (wildcard) return { ok: false, reason: "a wildcard cannot be asked for; name one host" };
  return { ok: true, to: `${host}:${Number(port)}` };
}

/** Only other names are rewritten: the function for that also reads numbers as addresses. */
function isPlain(name: string): boolean {
  return /^[\x21-\x7e]+$/.test(name);
}
