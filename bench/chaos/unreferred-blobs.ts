import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ChaosPlace } from "./place.ts";
import { Processes } from "./processes.ts";

/**
 * Blobs that nothing refers to, when all are a day older and another coordinator offers a fleet: only what that fleet's items read
 * may be there, which is the list of one directory without files.
 */
export async function unreferredBlobs({ base, db, machines, coordinator }: ChaosPlace): Promise<string[]> {
  const [one] = machines;
  if (one === undefined) throw new Error("there is no machine");
  await db.query("UPDATE corral.blobs SET used_at = used_at - interval '2 days'");
  const [before] = await db.query<{ n: number }>("SELECT count(*)::int AS n FROM corral.blobs");
  writeFileSync(join(base, "one.jsonl"), '{"n":"0"}\n');
  const env = { CORRAL_QUEUE: coordinator.processes.environment.CORRAL_QUEUE ?? "" };
  const next = new Processes({ name: "one", base, before: coordinator.processes.before, env });
  const words = ["map", "mark", "--manifest", join(base, "one.jsonl"), "--input", '{"n":"{n}"}', "--no-cache"];
  next.start([...words, "--concurrency", "1", "--machines"]);
  const code = await next.ended;
  if (code !== 0) return [`the fleet after all ended with ${code}: ${next.errors().slice(-500)}`];
  const left = await db.query<{ digest: string }>(
    "SELECT digest FROM corral.blobs WHERE used_at < now() - interval '1 day'",
  );
  return left.length === 0 ? [] : [`${left.length} of ${before?.n} blobs are left that nothing refers to`];
}
