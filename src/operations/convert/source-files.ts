import { isUtf8 } from "node:buffer";
import { basename } from "node:path";
import { Descriptor } from "../../files/host/descriptor.ts";
import { entriesOf } from "../../files/host/look.ts";
import { RequestError } from "../request-error.ts";
import { folderOfFile } from "./layout.ts";

/** A file to convert. */
export interface SourceFile {
  /** Absolute, as bytes: a name need not be text. */
  readonly path: Buffer;
  /** Where its results go, below the folder of all. */
  readonly folder: string;
  /** Its path below what was named, for people. */
  readonly shown: string;
  readonly bytes: number;
  /** False: Corral names files by texts, and its name is none, or one that no line can have. */
  readonly isNameable: boolean;
}

/** What is there and is not converted. */
export interface LeftOutEntry {
  readonly place: string;
  readonly why: string;
}

interface Walk {
  /** Real paths. */
  readonly sources: readonly string[];
  /** The real path of the folder of results, which may lie in a source. */
  readonly out: string;
  readonly signal: AbortSignal;
  readonly leftOut: (what: LeftOutEntry) => void;
}

const MAX_DEPTH = 64;
const MAX_FILES = 1_000_000;

/**
 * The files of folders, and files, in the order of their names. No link is followed. If there are several sources, each has a folder of its own.
 *
 * @throws RequestError FLEET_REFUSED if they are too many, or two sources have one name
 */
export async function sourceFiles({ sources, out, signal, leftOut }: Walk): Promise<SourceFile[]> {
  const found: SourceFile[] = [];
  const twin = sources.find((path, at) => sources.findIndex((other) => basename(other) === basename(path)) < at);
  if (twin !== undefined)
    throw new RequestError(
      "FLEET_REFUSED",
      twin,
      `two sources are named ${basename(twin)}: convert one after the other`,
    );
  for (const source of sources) {
    using start = Descriptor.name(source);
    const top = Buffer.from(basename(source));
    if (start.stat().isDirectory()) await walk(start, Buffer.from(source), sources.length > 1 ? [top] : [], 0);
    else add(start, Buffer.from(source), [top]);
  }
  return found;

  async function walk(folder: Descriptor, path: Buffer, names: readonly Buffer[], depth: number): Promise<void> {
    const entries = [];
    for await (const entry of entriesOf(folder)) entries.push(entry);
    entries.sort((one, other) => Buffer.compare(one.name, other.name));
    for (const { name, type } of entries) {
      signal.throwIfAborted();
      const here = Buffer.concat([path, SLASH, name]);
      const inside = [...names, name];
      const skip = (why: string): void => leftOut({ place: here.toString(), why });
      if (here.equals(Buffer.from(out))) continue;
      if (type === "link") skip("is a symbolic link, which is not followed");
      else if (type === "other") skip("is not a regular file");
      else if (type === "directory" && depth >= MAX_DEPTH) skip(`is more than ${MAX_DEPTH} directories deep`);
      else {
        try {
          using entry = folder.child(name, type === "directory");
          if (type === "directory") await walk(entry, here, inside, depth + 1);
          else add(entry, here, inside);
        } catch (error) {
          if (error instanceof RequestError || signal.aborted || !(error instanceof Error && "code" in error))
            throw error;
          skip(`cannot be read: ${error.message}`);
        }
      }
    }
  }

  function add(file: Descriptor, path: Buffer, names: readonly Buffer[]): void {
    const stats = file.stat();
    if (!stats.isFile()) {
      leftOut({ place: path.toString(), why: "is not a regular file" });
      return;
    }
    if (found.length >= MAX_FILES)
      throw new RequestError("FLEET_REFUSED", out, `there are more than ${MAX_FILES} files; convert parts of them`);
    const shown = Buffer.concat(names.flatMap((name, at) => (at === 0 ? [name] : [SLASH, name]))).toString();
    const isNameable = isUtf8(path) && !CONTROL.test(path.toString());
    found.push({ path, folder: folderOfFile(names), shown, bytes: stats.size, isNameable });
  }
}

const SLASH = Buffer.from("/");
const CONTROL = /[\p{Cc}]/u;
