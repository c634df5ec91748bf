import { lookup } from "node:dns/promises";
import { readRegistries } from "../../../src/declarations/network/registries/read-registries.ts";
import type { PackageKind } from "../../../src/sandbox/network/rule.ts";

/** The address of the first registry of this machine, or why there is none to try it with. `path`: what it must answer. */
export async function liveRegistry(kind: PackageKind, path: string): Promise<{ readonly address: string } | string> {
  const [found] = (await readRegistries([kind], { env: process.env, root: "/" })).get(kind)?.registries ?? [];
  if (found === undefined) return "this machine has none";
  try {
    const { address } = await lookup(new URL(found.url).hostname, { family: 4 });
    const answer = await fetch(`${found.url}${path}`, { method: "HEAD", signal: AbortSignal.timeout(5000) });
    return answer.ok ? { address } : `it answers ${answer.status}`;
  } catch (error) {
    return `it does not answer (${(error as Error).name})`;
  }
}
