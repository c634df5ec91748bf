import {
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  type Stats,
  writeSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { Script } from "node:vm";

type Module = (exports: object, load: (name: string) => unknown, module: object, file: string, dir: string) => void;
interface Pack {
  readonly path: string;
  /** By their names in the program. */
  readonly modules: Readonly<Record<string, Module>>;
}

/** What V8 compiled, by the name of the file. */
type Forms = ReadonlyMap<string, Buffer>;

/** V8 copies what does not begin at such a place. */
const ALIGNMENT = 8;
/** V8 compares no more of a file than its length, so only a name that changes with the content says which file a form is of. */
const NAMED_BY_CONTENT = /^(.*)-[\w-]{8}\.cjs$/;

/**
 * Loads the modules of the bundle, which are packed into files, and keeps what V8 compiled of these for the next start of the same command.
 * Node's own cache has only what is compiled before a file runs. This one is written at the end, so it has the functions that the command
 * called, and no others. The files have no `import()`: Node warns of one in code that is compiled in this way.
 *
 * `keptIn`: a file in a directory in which only this user can write, because what is read there runs. Null: nothing is kept.
 */
export function compiledFiles(dir: string, keptIn: string | null): (name: string) => unknown {
  const kept = keptIn === null ? new Map<string, Buffer>() : readForms(keptIn);
  const files = new Map(readdirSync(dir).map((file) => [NAMED_BY_CONTENT.exec(file)?.[1], file]));
  const packs = new Map<string, Pack>();
  const modules = new Map<string, { exports: object }>();
  const fresh = new Map<string, Script>();
  const packOf = (file: string): Pack => {
    const known = packs.get(file);
    if (known !== undefined) return known;
    const path = join(dir, file);
    const cachedData = kept.get(file);
    // The build writes ASCII.
    const script = new Script(readFileSync(path, "latin1"), { filename: path, ...(cachedData && { cachedData }) });
    if (!cachedData || script.cachedDataRejected) fresh.set(file, script);
    const pack: Pack = { path, modules: script.runInThisContext() };
    packs.set(file, pack);
    return pack;
  };
  const load = (name: string): unknown => {
    const known = modules.get(name);
    if (known !== undefined) return known.exports;
    const file = files.get(name.slice(0, name.indexOf(":")));
    const pack = file === undefined ? undefined : packOf(file);
    const run = pack?.modules[name];
    if (pack === undefined || run === undefined) return builtin(name);
    const module = { exports: {} };
    modules.set(name, module);
    run(module.exports, load, module, pack.path, dir);
    return module.exports;
  };
  if (keptIn !== null)
    process.once("exit", (status) => {
      // What a command that failed has called is not what the next one calls.
      if (status !== 0 || fresh.size === 0) return;
      const old = [...kept].filter(([name]) => !fresh.has(name) && existsSync(join(dir, name)));
      const made = [...fresh].map(([name, script]) => [name, script.createCachedData()] as const);
      writeForms(keptIn, new Map([...old, ...made]));
    });
  return load;
}

/** The bundle has all packages in it; some ask for others that may be absent. */
function builtin(name: string): unknown {
  const found = process.getBuiltinModule(name);
  if (found === undefined) throw new Error(`Cannot find module '${name}'`);
  return found;
}

/** An index of names and lengths in a line of JSON, and the forms, each at an aligned place. */
function readForms(path: string): Forms {
  const forms = new Map<string, Buffer>();
  try {
    const fd = openSync(path, "r");
    try {
      if (!isOwn(fstatSync(fd))) return forms;
      const bytes = readFileSync(fd);
      const head = bytes.indexOf("\n") + 1;
      let at = aligned(head);
      for (const [name, length] of JSON.parse(bytes.toString("latin1", 0, head)) as [string, number][]) {
        forms.set(name, bytes.subarray(at, at + length));
        at += aligned(length);
      }
    } finally {
      closeSync(fd);
    }
  } catch {
    // It was not written yet, or cannot be read: then all is compiled again.
  }
  return forms;
}

/** Without it, the next start takes longer: no reason to fail, or to say anything. */
function writeForms(path: string, forms: Forms): void {
  const written = `${path}.${process.pid}`;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    const fd = openSync(written, "w", 0o600);
    try {
      const index = `${JSON.stringify([...forms].map(([name, { length }]) => [name, length]))}\n`;
      for (const piece of [Buffer.from(index, "latin1"), ...forms.values()])
        writeSync(fd, Buffer.concat([piece], aligned(piece.length)));
      // V8 believes what it reads: after a crash of the machine, the file is whole or is not there.
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(written, path);
  } catch {}
}

function aligned(length: number): number {
  return Math.ceil(length / ALIGNMENT) * ALIGNMENT;
}

/** Whether no other user but root can have written it. */
export function isOwn({ uid, mode }: Pick<Stats, "uid" | "mode">): boolean {
  return uid === process.geteuid?.() && (mode & 0o022) === 0;
}

/** The versions of Node with which this was tried: one without the setting would print an error. */
const TRIED: ReadonlySet<string | undefined> = new Set(["22", "24"]);
/** Commands that may run for hours: what they do not use any more is to go soon. */
const LASTING: ReadonlySet<string | undefined> = new Set(["fleet", "map", "mcp", "serve", "work"]);

/** Of `session`: what passes files on has much of them outside of the heap, which only goes when what is young is looked through. */
const PASSES_FILES: ReadonlySet<string | undefined> = new Set(["hold", "put", "get"]);

const SETTING = "--semi-space-growth-factor";
const [LARGE, USUAL] = [32, 2];
/** V8 makes more room when it has looked twice and found so much in use: 1.5 MiB, or twice that in Node 22. */
const MAX_PIECES = 30;
const ENOUGH_BYTES = 8 * 1024 ** 2;
const PIECE = { arrays: 20, elements: 1000 };

/** Where zod has its settings (`z.config`): here they are made before it is loaded, since many commands never load it. */
const zod = globalThis as { __zod_globalConfig?: { readonly jitless: boolean } };

/** What is worth its time only in a process that lasts is left out. Nothing must be loaded before it that is not Node's. */
export function prepareShort(command: string | undefined, verb?: string): void {
  if (LASTING.has(command)) return;
  if (command === "session" && PASSES_FILES.has(verb)) return;
  // Else zod compiles a function for the shape of every object that it reads, most of them once.
  zod.__zod_globalConfig = { jitless: true };
  if (TRIED.has(process.versions.node.split(".")[0])) makeRoom();
}

/**
 * Makes room for all the objects of a short command at once. V8 begins with 1 MiB, and doubles it while it looks again and again for what
 * is not used any more: a seventh of the processor time of `corral run` (docs/facts.md, fact: room-for-a-start).
 *
 * The setting is as usual again before anything is loaded: V8 takes nothing that was compiled under other settings, also not Node's own modules.
 */
function makeRoom(): void {
  const room = (): number =>
    getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space")?.space_size ?? 0;
  const used: number[][] = [];
  setFlagsFromString(`${SETTING}=${LARGE}`);
  for (let pieces = 0; pieces < MAX_PIECES && room() < ENOUGH_BYTES; pieces += 1)
    for (let arrays = 0; arrays < PIECE.arrays; arrays += 1) used.push(new Array(PIECE.elements).fill(arrays));
  setFlagsFromString(`${SETTING}=${USUAL}`);
}
