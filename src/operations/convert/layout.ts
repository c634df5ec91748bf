import { isUtf8 } from "node:buffer";
import { sha256 } from "../../platform/sha256.ts";

/** What files can become. Each is a worker of the packaged project `templates/convert`. */
export const TARGETS = ["text", "pdf", "safe-pdf", "png", "parts", "facts"] as const;

export type ConversionTarget = (typeof TARGETS)[number];

/** Languages of tesseract: `eng`, `eng+deu`. */
export const OCR_LANGUAGES = /^[A-Za-z_]{2,20}(\+[A-Za-z_]{2,20}){0,9}$/;

/** Pixels an inch. */
export const DPI = { least: 36, most: 600 } as const;

/** A name on the disk has at most 255 bytes, and what is written beside it may add some. */
const MAX_NAME_BYTES = 200;
const KEPT_NAME_BYTES = 120;
/** Below the folder of all results. Deeper files lie flat. */
const MAX_PATH_BYTES = 2000;

/** What Corral itself writes at the top of the folder of results. */
export const RESULTS_FILE = "results.jsonl";
export const REPORT_FILE = "report.html";

/**
 * The folder of one file below the folder of all results: its path, in names that no shell, terminal or program takes for something else. Two files never get the
 * same: each character that is changed becomes the bytes that it had, `%0A`, and `%` is one of them. No name of it is hidden, leads elsewhere or is that of a result.
 */
export function folderOfFile(names: readonly Buffer[]): string {
  const parts = names.map((name, at) => plainName(name, at === 0));
  const path = parts.join("/");
  return Buffer.byteLength(path) <= MAX_PATH_BYTES ? path : digestName("", Buffer.concat(names.flatMap(withSlash)));
}

function withSlash(name: Buffer): Buffer[] {
  return [name, Buffer.from("/")];
}

/** Of one name. */
function plainName(raw: Buffer, isTop: boolean): string {
  const name = isUtf8(raw) ? textName(raw.toString()) : byteName(raw);
  const own = isTop && (name === RESULTS_FILE || name === REPORT_FILE) ? name.replace(".", "%2E") : name;
  return Buffer.byteLength(own) <= MAX_NAME_BYTES ? own : digestName(own, raw);
}

function textName(text: string): string {
  const characters = [...text];
  const last = characters.length - 1;
  return characters.map((one, at) => (isOdd(one, at, last) ? coded(Buffer.from(one)) : one)).join("");
}

function isOdd(one: string, at: number, last: number): boolean {
  return ODD.test(one) || ((at === 0 || at === last) && AT_EDGES.test(one)) || (at === 0 && AT_START.test(one));
}

/** `%` begins a code; a separator of another system, what a shell reads, and what has no mark of its own. */
const ODD = /[%\\:*?"<>|{}]|[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;
const AT_EDGES = /[ .]/;
const AT_START = /[-~]/;

/** Bytes that are no text: what is ASCII stays. */
function byteName(raw: Buffer): string {
  const last = raw.length - 1;
  return [...raw]
    .map((byte, at) =>
      byte < 0x80 && !isOdd(String.fromCharCode(byte), at, last) ? String.fromCharCode(byte) : coded([byte]),
    )
    .join("");
}

function coded(bytes: Iterable<number>): string {
  return [...bytes].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`).join("");
}

/** `%~` is in no other name: no file can be called so that it gets the folder of a longer one. */
function digestName(name: string, raw: Buffer): string {
  const kept = Buffer.from(name)
    .subarray(0, KEPT_NAME_BYTES)
    .toString()
    .replace(/(%.?|\ufffd*)$/u, "");
  return `${kept}%~${sha256(raw).slice(0, 24)}`;
}
