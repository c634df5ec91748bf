import type { ItemResult } from "../model/item.ts";

/** Results as lines of JSON, in the order in which they come. */
export async function* resultsJsonl(results: AsyncIterable<ItemResult> | Iterable<ItemResult>): AsyncGenerator<string> {
  for await (const result of results) yield resultLine(result);
}

/**
 * One result as a line. JSON leaves some control and formatting characters as they are; here they are escaped, so that a
 * worker reaches nobody's terminal: whoever parses the line gets the same.
 */
export function resultLine(result: ItemResult): string {
  const json = JSON.stringify(result).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    // One beyond the first 65,536 is two halves in JSON.
    Array.from({ length: character.length }, (_, index) => hex(character.charCodeAt(index))).join(""),
  );
  return `${json}\n`;
}

function hex(code: number): string {
  return `\\u${code.toString(16).padStart(4, "0")}`;
}
