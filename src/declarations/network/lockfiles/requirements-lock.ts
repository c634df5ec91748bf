import { digestOf, type LockParse, LockReading, MAX_LOCK_ENTRIES, refusedFile } from "./locked.ts";

/** An index of pip, and where its files are. */
export interface PipIndex {
  readonly registry: string;
  readonly files: { readonly registry: string; readonly path: string };
}

/** Options of a line of their own that name no other place. */
const HARMLESS = /^--(require-hashes|pre|prefer-binary|only-binary|no-binary)\b/;

/**
 * A `requirements.txt` in which each requirement has its hashes. Where the files are is known only to the index, so every path
 * of the files' host is taken, with no content but those of the hashes.
 */
export function parseRequirements(text: string, indexes: readonly PipIndex[]): LockParse {
  const reading = new LockReading();
  const names = new Set<string>();
  const digests = new Set<string>();
  for (const { line, content } of requirementsOf(text)) {
    if (content.startsWith("-")) {
      if (!HARMLESS.test(content))
        reading.fault(line, content.split(/[\s=]/)[0] ?? "", "is an option that Corral does not take in a lock file");
      continue;
    }
    const [, name, rest = ""] = /^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(.*)$/s.exec(content) ?? [];
    if (name === undefined) {
      reading.fault(line, "", "is not a requirement: a name, a version and hashes");
      continue;
    }
    const requirement = rest.replace(/\s--hash.*$/s, "").replace(/;.*$/s, "");
    if (/@|:\/\//.test(requirement)) reading.fault(line, name, "names a place of its own; only the index is used");
    const hashes = [...rest.matchAll(/\s--hash[=\s]\s*([a-z0-9]+):([0-9A-Fa-f]+)/g)];
    const known = hashes.flatMap(([, algorithm = "", hex = ""]) => digestOf(algorithm, hex, "hex") ?? []);
    if (known.length === 0) reading.fault(line, name, "has no `--hash` of sha256, sha384 or sha512");
    for (const digest of known) digests.add(digest);
    names.add(name.toLowerCase().replace(/[._-]+/g, "-"));
  }
  if (names.size > MAX_LOCK_ENTRIES || digests.size > 10 * MAX_LOCK_ENTRIES)
    return refusedFile(`has ${names.size} requirements; at most ${MAX_LOCK_ENTRIES} are taken`);
  const sorted = [...digests].sort();
  return reading.end({
    files: names.size === 0 ? [] : indexes.map(({ files }) => ({ ...files, digests: sorted })),
    indexes: indexes.flatMap(({ registry }) =>
      [...names].map((name) => ({ registry, path: `${new URL(registry).pathname}${name}/` })),
    ),
  });
}

/** Lines without comments, of which those that end in a backslash continue in the next one. */
function* requirementsOf(text: string): Generator<{ readonly line: number; readonly content: string }> {
  let held: { line: number; content: string } | null = null;
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const goesOn = raw.endsWith("\\");
    const content = (goesOn ? raw.slice(0, -1) : raw).replace(/(^|\s)#.*$/, "");
    held = held === null ? { line: index + 1, content } : { line: held.line, content: `${held.content} ${content}` };
    if (goesOn) continue;
    if (held.content.trim() !== "") yield { line: held.line, content: held.content.trim() };
    held = null;
  }
  if (held !== null && held.content.trim() !== "") yield { line: held.line, content: held.content.trim() };
}
