import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

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
