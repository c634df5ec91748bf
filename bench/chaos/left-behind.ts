import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "../../src/fleet/postgres/connection.ts";
import { listCells } from "../../src/operations/machine.ts";
import type { Processes } from "./processes.ts";
import { groupsNamed, mountsBelow, type SecondEngine } from "./second-engine.ts";

/** Together 200 s: what watches for the death of a process runs `corral reap` again for two minutes, and later on a busy machine. */
const LOOKS = 400;
const LOOK_MS = 500;

interface Places {
  readonly base: string;
  readonly processes: readonly Processes[];
  readonly engine: SecondEngine | null;
  readonly db: Connection;
}

/** Everything that is left after all processes have ended. What watches for the death of a process looks again after a while. */
export async function leftBehind(places: Places): Promise<string[]> {
  let left = await leftNow(places);
  for (let look = 0; left.length > 0 && look < LOOKS; look += 1) {
    await sleep(LOOK_MS);
    left = await leftNow(places);
  }
  return left;
}

async function leftNow({ base, processes, engine, db }: Places): Promise<string[]> {
  const own = await Promise.all(processes.map(leftOf));
  const held = (await engine?.held()) ?? [];
  const mounts = mountsBelow(base).filter((place) => !place.startsWith(join(base, "engine")));
  return [
    ...own.flat(),
    ...held.map((what) => `the second Engine has ${what}`),
    ...mounts.map((place) => `the mount ${place}`),
    ...processesOf(base).map((what) => `the process ${what}`),
    ...(await leftInQueue(db)),
  ];
}

async function leftOf(place: Processes): Promise<string[]> {
  const { stateDir, name } = place;
  const cells = await listCells({ stateDir, engineEnv: place.environment });
  const mark = createHash("sha256")
    .update(readFileSync(join(stateDir, "seal.key")))
    .digest("hex")
    .slice(0, 8);
  const groups = (await groupsNamed("corral")).filter((group) => group.includes(`corral-${mark}-`));
  const in_ = (folder: string, isLeft: (entry: string) => boolean = () => true): string[] =>
    entriesOf(join(stateDir, folder)).filter(isLeft);
  return [
    ...cells.map(({ run }) => `the cell of run ${run}`),
    ...groups.map((group) => `the control group ${group}`),
    ...in_("live").map((entry) => `live/${entry}`),
    ...in_("containers").map((entry) => `containers/${entry}`),
    ...in_("changes").map((entry) => `changes/${entry}`),
    // A draft is an empty directory that had no name yet; it is removed after ten minutes.
    ...in_("runc/cells", (entry) => !entry.startsWith(".new-")).map((entry) => `runc/cells/${entry}`),
    ...in_("runc/state").map((entry) => `runc/state/${entry}`),
    ...["mirrors/own", "mirrors/lent"].flatMap((folder) =>
      in_(folder, (entry) => !/^[0-9a-f]{64}(\.lock)?$/.test(entry)).map((entry) => `${folder}/${entry}`),
    ),
  ].map((what) => `${name} has ${what}`);
}

/** Rows that only a fleet that runs may have. */
async function leftInQueue(db: Connection): Promise<string[]> {
  const questions: Readonly<Record<string, string>> = {
    "items that are not done": "SELECT count(*)::int AS n FROM corral.items WHERE state <> 'done'",
    deliveries: "SELECT count(*)::int AS n FROM corral.deliveries",
    intents: "SELECT count(*)::int AS n FROM corral.intents",
    leases: "SELECT count(*)::int AS n FROM corral.processes WHERE lease_until > corral.now_ms()",
    "owned fleets": "SELECT count(*)::int AS n FROM corral.fleets WHERE owner IS NOT NULL OR agreement IS NOT NULL",
    "open transactions": `SELECT count(*)::int AS n FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'`,
  };
  const left: string[] = [];
  for (const [what, question] of Object.entries(questions)) {
    const [row] = await db.query<{ n: number }>(question);
    if (row?.n !== 0) left.push(`the queue has ${row?.n} ${what}`);
  }
  return left;
}

function processesOf(base: string): string[] {
  return entriesOf("/proc").flatMap((pid) => {
    if (!/^\d+$/.test(pid) || pid === String(process.pid)) return [];
    const environment = textOf(`/proc/${pid}/environ`);
    const command = textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ");
    // The server and the second Engine end later.
    const isCorral = environment.includes(`CORRAL_STATE_DIR=${base}`) || command.includes(`${base}/state-`);
    return isCorral ? [`${pid} ${command.slice(0, 200)}`] : [];
  });
}

function entriesOf(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
