import { posix } from "node:path";

/**
 * Why a link must not be brought back; null: it stays inside of its directory, wherever that stands. Steps upwards are at
 * the beginning alone: after a name they start from wherever that leads, which may be another link. `depth`: how many
 * folders lie between the directory and the link.
 */
export function linkTextFault(linkText: string, depth: number): string | null {
  if (linkText === "" || linkText.includes("\0")) return "it is a link without a text";
  if (posix.isAbsolute(linkText)) return "it is a link that is absolute";
  const steps = linkText.split("/").filter((step) => step !== "" && step !== ".");
  const down = steps.findIndex((step) => step !== "..");
  const ups = down < 0 ? steps.length : down;
  if (ups > depth) return "it is a link that leads out";
  return steps.includes("..", ups) ? "it is a link that goes up after it went down" : null;
}
