import type pc from "picocolors";
import type { RunResult } from "../../run/model/result.ts";
import type { DeniedTraffic } from "../../sandbox/network/judge.ts";
import { printable, printableLine, unidirectional } from "../../text/visible.ts";

/** So many hosts are named one by one. */
const MAX_DENIED = 20;

/** What a run and the runs that it called were refused on their networks, a line for each host and reason. */
export function deniedLines(result: RunResult): string[] {
  const denied = deniedIn(result);
  const lines = denied.slice(0, MAX_DENIED).map(({ worker, line }) => deniedLine(worker, line));
  return denied.length <= MAX_DENIED ? lines : [...lines, `corral: network: and ${denied.length - MAX_DENIED} more`];
}

/** A worker chose the host, so the line is escaped for the terminal. */
export function deniedLine(worker: string, { to, count, detail }: DeniedTraffic): string {
  const times = count === 1 ? "" : ` ×${count}`;
  const head = `corral: network: denied ${printableLine(to, 300)}${times} (${printableLine(worker, 80)})`;
  return `${head}: ${printableLine(detail, 500)}`;
}

function deniedIn({ worker, network, calls }: RunResult): { readonly worker: string; readonly line: DeniedTraffic }[] {
  return [...(network?.denied ?? []).map((line) => ({ worker, line })), ...calls.flatMap(deniedIn)];
}

/** How a text is coloured; whether it is at all, its stream decides. */
export type Colors = ReturnType<typeof pc.createColors>;

/**
 * Text that a worker chose, line by line, with a mark before each. Lines that are too long for the terminal are broken
 * here, for else the terminal would break them, and what follows would look like a line of Corral's own.
 */
export function quotedLines(text: string, columns: number, paint: (line: string) => string = (line) => line): string[] {
  const room = Math.max(20, columns - FURTHER.length - 1);
  return text.split("\n").flatMap((line) => {
    const whole = printable(line.replaceAll("\t", TAB));
    const painted = (widthOf(whole) <= room ? [whole] : broken(unidirectional(whole), room)).map(paint);
    return painted.map((part, index) => `${index === 0 ? FIRST : FURTHER}${part}`);
  });
}

/** How many columns a text takes at most. What is not ASCII may be two wide. */
export function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += columnsOf(character);
  return width;
}

const FIRST = "  ┊ ";
const FURTHER = "  ┊   ↳ ";
/** Shown as what it is: in a diff a tab and blanks are not the same. */
const TAB = "→   ";

function broken(line: string, room: number): string[] {
  const parts: string[] = [];
  let part = "";
  let width = 0;
  // A mark stays with its letter: at the beginning of a line it would be drawn over Corral's own.
  for (const [character] of line.matchAll(/.\p{M}*/gsu)) {
    const more = widthOf(character);
    if (width + more > room) {
      parts.push(part);
      part = "";
      width = 0;
    }
    part += character;
    width += more;
  }
  return [...parts, part];
}

function columnsOf(character: string): number {
  return character.charCodeAt(0) < 0x80 ? 1 : 2;
}
