import { ROOTED_BASE } from "../../sandbox/reserved.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";

/** The path at which a cell sees what is at `path`. */
export function inCell(path: string, { rooted }: Pick<Sandbox, "rooted">): string {
  if (!rooted) return path;
  return path === "/" ? ROOTED_BASE : ROOTED_BASE + path;
}
