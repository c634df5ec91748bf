import { posix } from "node:path";
import type { Header } from "tar-stream";
import type { GuardedFiles } from "../../files/guarded.ts";
import { GATE_PATH, HOME_PATH, type Plan } from "../../isolation/plan/plan.ts";
import type {
  CarriableContent,
  CarriedContent,
  CarriedEnd,
  ExecExit,
  ExecRequest,
  PipeEnd,
  SessionCell,
} from "../../isolation/port/cell.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { passedOn } from "../../platform/byte-streams.ts";
import { tarEntries } from "../../platform/tar-entries.ts";
import { onAbort } from "../../platform/within.ts";
import { parsePathIn } from "../../sandbox/access.ts";
import { SandboxError } from "../../sandbox/errors.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { SecretSearch } from "../../secrets/read-secret.ts";
import { formatBytes } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { inCell } from "../model/job.ts";
import type { OnOutput } from "./exec-command.ts";

/* Files of any size, as bytes. Programs of Corral's own read and write them in the session's cell, with the rights of the worker: what the
validator permits is looked at before, and the kernel enforces it. So memory of the cell, such as /tmp, has them too. */

export type TransferKind = "file" | "folder";

export interface MovedContent {
  readonly kind: TransferKind;
  readonly bytes: number;
  readonly files: number;
}

/** What a transfer acts on. */
export interface TransferPlace {
  readonly cell: SessionCell;
  readonly contents: SessionCell;
  readonly search: () => SecretSearch | null;
  readonly plan: Plan;
  readonly files: GuardedFiles;
  readonly sandbox: Sandbox;
}

/** Entries of one folder that is sent. */
const MAX_ENTRIES = 200_000;
/** How far reading may be ahead of the one who takes it. */
const AHEAD_BYTES = 1024 ** 2;
const MAX_ERROR_CHARS = 2000;

/** Refuses a place that links lead to: what is read or written is what was named. */
const NO_LINKS = `
g=$0
real() { [ "$("$g" readlink -f -- "$1")" = "$1" ] || { echo "a link leads there" >&2; exit 3; }; }
`;
/** The file is complete or not there. The name is that of no other file. */
const PUT_FILE = `${NO_LINKS}
d=\${1%/*}
"$g" mkdir -p -- "$d/" && real "\${d:-/}" || exit
[ ! -d "$1" ] || { echo "it is a directory" >&2; exit 3; }
[ ! -L "$1" ] || { echo "it is a link" >&2; exit 3; }
"$g" cat > "$d/$2" && "$g" mv -f -- "$d/$2" "$1"
`;
const PUT_FOLDER = `${NO_LINKS}
"$g" mkdir -p -- "$1" && real "$1" && cd -- "$1" && "$g" tar -x -f -
`;
const GET_KIND = `${NO_LINKS}
if [ -L "$1" ]; then echo "it is a link" >&2; exit 3; fi
if [ ! -e "$1" ]; then echo "it does not exist" >&2; exit 4; fi
real "$1"
if [ -d "$1" ]; then echo folder; elif [ -f "$1" ]; then echo "file $("$g" stat -c %s -- "$1")"; else echo "it is no file or directory" >&2; exit 3; fi
`;
/** How the script ends if there is nothing. */
const MISSING = 4;
const GET_FILE = `exec "$0" cat < "$1"`;
const GET_FOLDER = `cd -- "$1" && exec "$0" tar -c -f - .`;

/** Writes a file, or the entries of a tar archive into a folder. Rejects with `ToolRefusal`, a `SandboxError` or `EngineTrouble`. */
export async function putInto(
  place: TransferPlace,
  {
    path,
    kind,
    content,
    carried,
  }: {
    readonly path: string;
    readonly kind: TransferKind;
    readonly content: AsyncIterable<Uint8Array>;
    /** In place of the content of a file, if the cell has pipes. */
    readonly carried?: CarriedContent;
  },
  signal: AbortSignal,
): Promise<MovedContent> {
  const target = writablePlace(place, path);
  const counted = { kind, bytes: 0, files: kind === "file" ? 1 : 0 };
  if (kind === "folder") {
    const bytes = checkedArchive(place, path, passedOn(content), counted);
    await ran(place, [PUT_FOLDER, target], { input: bytes, what: `put ${path}` }, signal);
    return counted;
  }
  const name = `.corral-put-${Math.random().toString(36).slice(2)}`;
  const bytes = async function* () {
    for await (const piece of passedOn(content)) {
      counted.bytes += piece.length;
      yield piece;
    }
  };
  const direct = place.cell.hasPipes === true ? carried : undefined;
  if (direct !== undefined) counted.bytes = direct.bytes;
  try {
    await ran(place, [PUT_FILE, target, name], { input: direct ?? bytes(), what: `put ${path}` }, signal);
  } catch (error) {
    const left = posix.join(posix.dirname(target), name);
    await ran(place, ['exec "$0" rm -f -- "$1"', left], { what: "clean" }, AbortSignal.timeout(5000)).catch(() => {});
    throw error;
  }
  return counted;
}

export interface FoundContent {
  readonly kind: TransferKind;
  readonly content: AsyncIterable<Uint8Array>;
  /** The same, if it is a file without secrets to look for in a cell with pipes. */
  readonly carriable?: CarriableContent;
}

/** A file's bytes, or a folder as a tar archive. They are read as fast as they are taken; an error of reading ends them. */
export async function getFrom(
  place: TransferPlace,
  path: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<FoundContent> {
  const target = readablePlace(place, path);
  let said = "";
  const onOutput: OnOutput = (_, chunk) => {
    said += chunk.toString("latin1");
    return undefined;
  };
  await ran(place, [GET_KIND, target], { onOutput, what: `get ${path}` }, signal);
  const [found, size = ""] = said.trim().split(" ");
  const kind = found === "folder" ? "folder" : "file";
  const what = `get ${path}`;
  const bytes = kind === "file" && /^\d+$/.test(size) ? Number(size) : null;
  if (bytes !== null && bytes > maxBytes) throw tooLarge(maxBytes, what);
  const all = passedOn(piecesOf(place, [kind === "folder" ? GET_FOLDER : GET_FILE, target], what, signal));
  const pieces = Number.isFinite(maxBytes) ? await begun(bounded(all, maxBytes, what)) : all;
  const search = place.search();
  if (search !== null) return { kind, content: await begun(withoutSecrets(pieces, search, what)) };
  if (bytes === null || place.contents.hasPipes !== true) return { kind, content: pieces };
  return { kind, content: pieces, carriable: { bytes, through: (carry) => carriedFrom(place, target, carry, signal) } };
}

/** Its reader knows how much it is: what is less was cut. */
async function carriedFrom(
  { contents }: TransferPlace,
  target: string,
  carry: (pipe: PipeEnd) => Promise<CarriedEnd>,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  let carried: Promise<unknown> = Promise.resolve();
  const exec = await contents.exec({
    ...runs([GET_FILE, target]),
    stdin: new Uint8Array(),
    takesOutput: (pipe) => {
      carried = carry(pipe);
    },
    onOutput: () => undefined,
  });
  const kill = (): void => void exec.signal("SIGKILL").catch(() => false);
  using _ = onAbort(signal, kill);
  await carried;
  kill();
  await exec.exit;
}

/** The same, with its first bytes there: what is wrong with a short content is an answer, and no end in its middle. */
async function begun(pieces: AsyncGenerator<Uint8Array>): Promise<AsyncGenerator<Uint8Array>> {
  const first = await pieces.next();
  async function* all(): AsyncGenerator<Uint8Array> {
    if (first.done !== true) yield first.value;
    yield* pieces;
  }
  return all();
}

/** What has more is not whole: its reader gets an error in place of an end. */
async function* bounded(pieces: AsyncIterable<Uint8Array>, maxBytes: number, what: string): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > maxBytes) throw tooLarge(maxBytes, what);
    yield piece;
  }
}

function tooLarge(maxBytes: number, what: string): ToolRefusal {
  const why = `it has more than ${formatBytes(maxBytes)}, which is the most that was asked for`;
  return new ToolRefusal("TOO_LARGE", `Cannot ${what}: ${why}.`);
}

/** The same bytes up to a secret of the session, which ends them: a content is whole, and as it was written, or refused. */
async function* withoutSecrets(
  pieces: AsyncIterable<Uint8Array>,
  search: SecretSearch,
  what: string,
): AsyncGenerator<Uint8Array> {
  let held = Buffer.alloc(0);
  for await (const piece of pieces) {
    const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    const secret = search.add(bytes);
    if (secret !== null)
      throw new ToolRefusal("CONTAINS_SECRET", `Cannot ${what}: it contains the secret \`${secret}\` of the session.`);
    held = Buffer.concat([held, bytes]);
    const free = Math.max(0, held.length - search.mayBegin);
    if (free > 0) yield held.subarray(0, free);
    held = held.subarray(free);
  }
  if (held.length > 0) yield held;
}

/** The cell's path of a place that the file tools could write, or that is memory of the cell. */
function writablePlace({ files, sandbox, plan }: TransferPlace, path: string): string {
  const own = ownMemory(plan, path);
  if (own !== null) return own;
  const [need] = files.needs("write", path);
  if (need?.consent === "blocked") throw new ToolRefusal("PATH_NOT_WRITABLE", `Nothing may be written to ${path}.`);
  return placeInCell(sandbox, path);
}

function readablePlace({ files, sandbox, plan }: TransferPlace, path: string): string {
  const own = ownMemory(plan, path);
  if (own !== null) return own;
  const resolved = files.resolve(path);
  if (!resolved.ok) throw resolved.error;
  return placeInCell(sandbox, path);
}

function placeInCell(sandbox: Sandbox, path: string): string {
  const parsed = parsePathIn(sandbox, path);
  if (!parsed.ok) throw new ToolRefusal("PATH_NOT_IN_SANDBOX", `${printableLine(path)}: ${parsed.reason}.`);
  return inCell(parsed.path, sandbox);
}

/** Null for a path that is in no memory of the cell. */
function ownMemory({ tmpfs }: Plan, path: string): string | null {
  const plain = path.includes("\0") ? "" : posix.normalize(path).replace(/(.)\/$/, "$1");
  const memory = [...tmpfs.map((one) => one.path), HOME_PATH];
  return memory.some((own) => plain === own || plain.startsWith(`${own}/`)) ? plain : null;
}

/** The same archive with what may be put there: files, folders, and links that stay inside of it. */
async function* checkedArchive(
  place: TransferPlace,
  path: string,
  content: AsyncIterable<Uint8Array>,
  counted: { bytes: number; files: number },
): AsyncGenerator<Uint8Array> {
  let entries = 0;
  try {
    for await (const entry of tarEntries(content)) {
      entries += 1;
      if (entries > MAX_ENTRIES)
        throw new ToolRefusal("TOO_MANY_FILES", `A folder has at most ${MAX_ENTRIES} entries.`);
      const header = checkedEntry(place, path, entry.header);
      if (header !== null) yield tarHeader(header);
      if (header?.type === "file") {
        counted.files += 1;
        counted.bytes += header.size;
      }
      for await (const piece of entry) if (header?.type === "file") yield piece;
      if (header?.type === "file") yield Buffer.alloc(paddingOf(header.size));
    }
  } catch (error) {
    throw error instanceof ToolRefusal || error instanceof SandboxError ? error : brokenArchive(error as Error);
  }
  yield Buffer.alloc(2 * BLOCK);
}

function brokenArchive(error: Error): ToolRefusal {
  return new ToolRefusal("BAD_ARCHIVE", `The archive is not whole, or no tar archive: ${error.message}.`);
}

interface Entry {
  readonly name: string;
  readonly type: "file" | "directory" | "symlink";
  readonly linkname: string;
  readonly isExecutable: boolean;
  readonly size: number;
}

/** Null for the folder itself. @throws ToolRefusal, SandboxError */
function checkedEntry(
  place: TransferPlace,
  path: string,
  { name, type, linkname, mode, size = 0 }: Partial<Header> & Pick<Header, "name">,
): Entry | null {
  const plain = posix.normalize(name).replace(/\/$/, "");
  const refused = (why: string): ToolRefusal =>
    new ToolRefusal("BAD_ARCHIVE", `${printableLine(name)} in the archive ${why}.`);
  const leadsOut = (to: string): boolean => posix.isAbsolute(to) || to === ".." || to.startsWith("../");
  if (plain === ".") return null;
  if (leadsOut(plain) || plain.includes("\0")) throw refused("leads out of the folder");
  writablePlace(place, posix.join(path, plain));
  const entry = { name: plain, linkname: "", isExecutable: ((mode ?? 0) & 0o111) !== 0, size: 0 };
  if (type === "directory") return { ...entry, type };
  if (type === "symlink") {
    if (!linkname || posix.isAbsolute(linkname) || leadsOut(posix.join(posix.dirname(plain), linkname)))
      throw refused("is a link that leads out of the folder");
    return { ...entry, type, linkname };
  }
  if (type !== "file" && type !== "contiguous-file") throw refused(`is no file, folder or symbolic link`);
  if (size > MAX_ENTRY_BYTES) throw refused("has more than 8 GiB; send it by itself");
  return { ...entry, type: "file", size };
}

const BLOCK = 512;
/** What eleven octal digits can say. */
const MAX_ENTRY_BYTES = 8 ** 11 - 1;
const TYPE_FLAGS = { file: "0", symlink: "2", directory: "5", longName: "L", longLink: "K" } as const;

function paddingOf(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

/** A header as the gate's tar reads it, which does not know those of pax: long names are entries of GNU tar before it. */
function tarHeader({ name, type, linkname, isExecutable, size }: Entry): Buffer {
  const [path, to] = [Buffer.from(type === "directory" ? `${name}/` : name), Buffer.from(linkname)];
  const block = (flag: string, file: Buffer, link: Buffer, bytes: number, mode: number): Buffer => {
    const header = Buffer.alloc(BLOCK);
    file.copy(header, 0, 0, 100);
    header.write(mode.toString(8).padStart(7, "0"), 100);
    for (const at of [108, 116]) header.write("0000000", at);
    header.write(bytes.toString(8).padStart(11, "0"), 124);
    header.write(
      Math.floor(Date.now() / 1000)
        .toString(8)
        .padStart(11, "0"),
      136,
    );
    header.write(`        ${flag}`, 148);
    link.copy(header, 157, 0, 100);
    header.write("ustar\u000000", 257);
    const sum = header.reduce((all, byte) => all + byte, 0);
    header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    return header;
  };
  const long = (flag: string, text: Buffer): Buffer[] => {
    if (text.length <= 100) return [];
    const whole = Buffer.concat([text, Buffer.alloc(1)]);
    const head = block(flag, Buffer.from("././@LongLink"), Buffer.alloc(0), whole.length, 0o644);
    return [head, whole, Buffer.alloc(paddingOf(whole.length))];
  };
  const mode = type === "directory" || isExecutable ? 0o755 : 0o644;
  return Buffer.concat([
    ...long(TYPE_FLAGS.longLink, to),
    ...long(TYPE_FLAGS.longName, path),
    block(TYPE_FLAGS[type], path, to, size, mode),
  ]);
}

interface Running {
  readonly input?: AsyncIterable<Uint8Array> | CarriedContent;
  readonly onOutput?: OnOutput;
  /** For errors: `put /out/a`. */
  readonly what: string;
}

type Script = readonly [script: string, ...args: string[]];

function runs([script, ...args]: Script): Pick<ExecRequest, "argv" | "cwd" | "env"> {
  return { argv: [GATE_PATH, "sh", "-c", script, GATE_PATH, ...args], cwd: "/", env: {} };
}

/** Runs a script of Corral's own, as the worker, with all of an input. Rejects with `ToolRefusal` for what it says. */
async function ran(place: TransferPlace, script: Script, { input, onOutput, what }: Running, signal: AbortSignal) {
  signal.throwIfAborted();
  let errors = "";
  const request: ExecRequest = {
    ...runs(script),
    ...(input === undefined ? { stdin: new Uint8Array() } : {}),
    onOutput: (stream, chunk) => {
      if (stream === "stdout") return onOutput?.(stream, chunk);
      errors = (errors + chunk.toString()).slice(0, MAX_ERROR_CHARS);
      return undefined;
    },
  };
  const exec = await place.cell.exec(request);
  const kill = (): void => void exec.signal("SIGKILL").catch(() => {});
  using _ = onAbort(signal, kill);
  let hasEnded = false;
  void exec.exit.then(() => {
    hasEnded = true;
  });
  let end: CarriedEnd = "whole";
  try {
    if (input !== undefined && "into" in input) {
      end = exec.input === undefined ? "cut" : await input.into(exec.input);
      if (end === "cut") throw new Error("It is not whole.");
    } else
      for await (const piece of input ?? []) {
        if (hasEnded || signal.aborted) break;
        await exec.write(piece);
      }
  } catch (error) {
    // Its input must not look complete to it.
    await exec.signal("SIGKILL");
    await exec.exit;
    signal.throwIfAborted();
    if (error instanceof ToolRefusal || error instanceof SandboxError) throw error;
    throw new ToolRefusal("CONTENT_CUT", `Cannot ${what}: what was sent broke off. ${(error as Error).message}`);
  }
  signal.throwIfAborted();
  if (input !== undefined) exec.closeInput();
  refuseFailed(await exec.exit, errors, what, place);
  if (end !== "whole") throw new ToolRefusal("NOT_TRANSFERRED", `Cannot ${what}: it was not read to its end.`);
  signal.throwIfAborted();
}

function refuseFailed(exit: ExecExit, errors: string, what: string, { plan }: TransferPlace): void {
  if (exit.kind === "lost") throw new EngineTrouble(exit.reason);
  if (exit.code === 0) return;
  const why = printableLine(errors.trim().replaceAll(GATE_PATH, "").split("\n").at(-1) ?? "");
  const full = exit.cellAlive
    ? ""
    : ` The cell ended with it: its disk limit is ${formatBytes(plan.limits.diskBytes)}.`;
  throw new ToolRefusal(
    exit.code === MISSING ? "NOT_FOUND" : "NOT_TRANSFERRED",
    `Cannot ${what}: ${why === "" ? `it ended with ${exit.code}` : why}.${full}`,
  );
}

/** What a script prints, at the pace of who takes it. Ends the script if that leaves. */
async function* piecesOf(
  place: TransferPlace,
  script: Script,
  what: string,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const pieces: Buffer[] = [];
  let [bytes, errors] = [0, ""];
  let [news, room] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let exit: ExecExit | null = null;
  const exec = await place.contents.exec({
    ...runs(script),
    stdin: new Uint8Array(),
    onOutput: (stream, chunk) => {
      if (stream === "stderr") {
        errors = (errors + chunk.toString()).slice(0, MAX_ERROR_CHARS);
        return undefined;
      }
      pieces.push(chunk);
      bytes += chunk.length;
      news.resolve();
      return bytes > AHEAD_BYTES ? room.promise : undefined;
    },
  });
  void exec.exit.then((end) => {
    exit = end;
    news.resolve();
  });
  const ended = (): ExecExit | null => exit;
  const leave = (): void => void exec.signal("SIGKILL").catch(() => false);
  // Also if it was begun and is not read on.
  using _ = onAbort(signal, () => {
    news.resolve();
    room.resolve();
    if (ended() === null) leave();
  });
  try {
    for (;;) {
      signal.throwIfAborted();
      const piece = pieces.shift();
      if (piece !== undefined) {
        bytes -= piece.length;
        if (bytes <= AHEAD_BYTES) {
          room.resolve();
          room = Promise.withResolvers();
        }
        yield piece;
        continue;
      }
      const end = ended();
      if (end !== null) return refuseFailed(end, errors, what, place);
      news = Promise.withResolvers();
      // What came between the two lines above is there now.
      if (pieces.length === 0 && ended() === null && !signal.aborted) await news.promise;
    }
  } finally {
    room.resolve();
    if (ended() === null) await exec.signal("SIGKILL").catch(() => false);
  }
}
