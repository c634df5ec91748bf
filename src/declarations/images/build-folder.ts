import { constants } from "node:fs";
import { readdir } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { sha256 } from "../../platform/sha256.ts";
import { openRegular } from "../../platform/write-file.ts";
import { formatBytes } from "../../text/amounts.ts";

/** More than any Dockerfile has. */
const MAX_BASES = 50;

/**
 * The images that a Dockerfile begins with or copies from, but for its own stages and `scratch`. An `ARG` before the first
 * `FROM` counts with its default: Corral passes none.
 */
export function baseImagesOf(dockerfile: string): FolderRead<readonly string[]> {
  const defaults = new Map<string, string>();
  const stages = new Set<string>();
  const bases = new Set<string>();
  let begun = false;
  for (const line of instructionsOf(dockerfile)) {
    const [word = "", ...rest] = line.split(/\s+/);
    const instruction = word.toUpperCase();
    if (instruction === "ARG" && !begun) {
      for (const argument of rest) {
        const [name = "", ...value] = argument.split("=");
        if (value.length > 0) defaults.set(name, unquoted(value.join("=")));
      }
    } else if (instruction === "FROM") {
      begun = true;
      const [written = "", as, stage] = rest.filter((option) => !option.startsWith("--"));
      const base = filledIn(unquoted(written), defaults);
      if (base === null) return { ok: false, fault: `its Dockerfile has FROM ${written}, which has no default` };
      if (!stages.has(base.toLowerCase()) && base !== "scratch") bases.add(base);
      if (as?.toUpperCase() === "AS" && stage !== undefined) stages.add(stage.toLowerCase());
    } else {
      const from = /\s--from=(\S+)/.exec(line)?.[1];
      if (from !== undefined && !/^\d+$/.test(from) && !stages.has(from.toLowerCase())) bases.add(from);
    }
  }
  if (!begun) return { ok: false, fault: "its Dockerfile has no FROM" };
  if (bases.size > MAX_BASES) return { ok: false, fault: `its Dockerfile names more than ${MAX_BASES} images` };
  return { ok: true, value: [...bases].sort() };
}

/** Without comments. A backslash at the end of a line joins it with the next one. */
function instructionsOf(dockerfile: string): string[] {
  return dockerfile
    .split(/\r?\n/)
    .filter((line) => !/^\s*#/.test(line))
    .join("\n")
    .replace(/\\[ \t]*\n/g, " ")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** `$NAME`, `${NAME}` and `${NAME:-default}`; null if a name has no value. */
function filledIn(text: string, values: ReadonlyMap<string, string>): string | null {
  let isKnown = true;
  const filled = text.replace(
    /\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))/g,
    (_, braced?: string, other?: string, bare?: string) => {
      const value = values.get(braced ?? bare ?? "") || other;
      isKnown &&= value !== undefined;
      return value ?? "";
    },
  );
  return isKnown && filled !== "" ? filled : null;
}

function unquoted(text: string): string {
  return text.replace(/^(["'])(.*)\1$/, "$2");
}

/** More lines say more than a folder of this size needs. */
const MAX_LINES = 500;

/**
 * Which files a `.dockerignore` leaves out. A line is a path from the folder, in which `*` and `?` stand for characters of one
 * name and `**` for any folders; what is below a path that matches is left out too. Exceptions (`!`) are refused: they would
 * make it hard to see what is built.
 */
function ignoredBy(text: string): FolderRead<(path: string) => boolean> {
  const lines = text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  if (lines.length > MAX_LINES) return { ok: false, fault: `.dockerignore has more than ${MAX_LINES} lines` };
  if (lines.some((line) => line.startsWith("!")))
    return { ok: false, fault: ".dockerignore has a line with `!`, which Corral does not take" };
  const patterns = lines.map((line) => patternOf(line.replace(/^\.?\/+/, "").replace(/\/+$/, "")));
  return { ok: true, value: (path) => patterns.some((pattern) => pattern.test(path)) };
}

function patternOf(line: string): RegExp {
  const parts = line.split(/(\*\*\/|\*\*|\*|\?)/).map((part) => STANDS_FOR[part] ?? escaped(part));
  return new RegExp(`^${parts.join("")}(/|$)`);
}

const STANDS_FOR: Readonly<Record<string, string>> = { "**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]" };

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** A file that a build sees. */
export interface BuildFile {
  /** From the folder, with `/`. */
  readonly name: string;
  readonly content: Buffer;
  readonly executable: boolean;
}

/** A folder to build an image from, read once: what is built is what was read. */
export interface BuildFolder {
  readonly files: readonly BuildFile[];
  /** The text of its Dockerfile. */
  readonly dockerfile: string;
  /** Changes with each name, content and executable bit. Owners and times do not count. */
  readonly sha256: string;
}

export const MAX_BUILD_FILES = 1000;
export const MAX_BUILD_BYTES = 64 * 1024 * 1024;
const MAX_IGNORE_BYTES = 64 * 1024;
/** The most names that are read, including those that are left out. */
const MAX_NAMES = 20_000;

/** Reads the folder at an absolute path without symbolic links. A link in it is a fault, because it could lead anywhere. */
export async function readBuildFolder(dir: string): Promise<FolderRead<BuildFolder>> {
  const fault = (text: string) => ({ ok: false, fault: text }) as const;
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  if (entries.length > MAX_NAMES) return fault(`it has more than ${MAX_NAMES} names`);
  const named = entries.map((entry) => ({
    entry,
    path: relative(dir, join(entry.parentPath, entry.name)).split(sep).join("/"),
  }));
  const ignore = named.find(({ path }) => path === ".dockerignore");
  const ignored =
    ignore === undefined
      ? null
      : ignoredBy((await fileAt(dir, ignore.path, MAX_IGNORE_BYTES))?.content.toString() ?? "!");
  if (ignored?.ok === false) return ignored;
  const kept = named
    .filter(({ path }) => path === "Dockerfile" || (path !== ".dockerignore" && ignored?.value(path) !== true))
    .filter(({ entry }) => !entry.isDirectory())
    .sort((a, b) => (a.path < b.path ? -1 : 1));
  const strange = kept.find(({ entry }) => !entry.isFile());
  if (strange !== undefined) return fault(`${strange.path} is ${kindOf(strange.entry)}, which no build takes`);
  if (!kept.some(({ path }) => path === "Dockerfile")) return fault("it has no Dockerfile");
  if (kept.length > MAX_BUILD_FILES) return fault(`it has more than ${MAX_BUILD_FILES} files`);
  const files: BuildFile[] = [];
  let left = MAX_BUILD_BYTES;
  for (const { path } of kept) {
    const file = await fileAt(dir, path, left);
    if (file === null) return fault(`it has more than ${formatBytes(MAX_BUILD_BYTES)}`);
    left -= file.content.length;
    files.push(file);
  }
  const dockerfile = files.find(({ name }) => name === "Dockerfile")?.content.toString() ?? "";
  const lines = files.map(({ name, content, executable }) => [name, executable, sha256(content)]);
  return { ok: true, value: { files, dockerfile, sha256: sha256(JSON.stringify(lines)) } };
}

/** Null if it is larger. */
async function fileAt(dir: string, name: string, maxBytes: number): Promise<BuildFile | null> {
  await using file = await openRegular(join(dir, name), constants.O_RDONLY);
  const { size, mode } = await file.stat();
  if (size > maxBytes) return null;
  const content = await file.readFile();
  return content.length > maxBytes ? null : { name, content, executable: (mode & 0o100) !== 0 };
}

function kindOf(entry: { isSymbolicLink(): boolean }): string {
  return entry.isSymbolicLink() ? "a symbolic link" : "no regular file";
}

/** What was read for an image, or why it cannot be used. */
export type FolderRead<Value> =
  | { readonly ok: true; readonly value: Value }
  /** `fault` names files by their path in the folder. */
  | { readonly ok: false; readonly fault: string };
