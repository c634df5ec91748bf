import { posix } from "node:path";

/**
 * Why a link must not be applied; null if it stays inside of its directory, wherever that is. `..` is only allowed at the
 * beginning: after a name it starts from where that name leads, which may be another link. `depth`: the number of folders
 * between the directory and the link.
 */
export function linkTextFault(linkText: string, depth: number): string | null {
  if (linkText === "" || linkText.includes("\0")) return "it is a link with an empty or invalid target";
  if (posix.isAbsolute(linkText)) return "it is an absolute link";
  const steps = linkText.split("/").filter((step) => step !== "" && step !== ".");
  const down = steps.findIndex((step) => step !== "..");
  const ups = down < 0 ? steps.length : down;
  if (ups > depth) return "it is a link that leaves its directory";
  return steps.includes("..", ups) ? "it is a link with `..` after a name" : null;
}
