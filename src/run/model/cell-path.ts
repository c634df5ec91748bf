import { ROOTED_BASE } from "../../isolation/plan/plan.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";

/** A worker in a rooted namespace sees it below `/project`, and may call its files by what it sees. */
export function fromCell(path: string, sandbox: Sandbox): string {
  if (!sandbox.rooted) return path;
  if (path === ROOTED_BASE) return "/";
  return path.startsWith(`${ROOTED_BASE}/`) ? path.slice(ROOTED_BASE.length) : path;
}

/** The reverse: the path at which a cell sees what is at `path`. */
export function inCell(path: string, { rooted }: Pick<Sandbox, "rooted">): string {
  if (!rooted) return path;
  return path === "/" ? ROOTED_BASE : ROOTED_BASE + path;
}
