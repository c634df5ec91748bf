import { setTimeout as sleep } from "node:timers/promises";
import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import { transportBy } from "../../src/operations/run-fleet.ts";
import type { Bench } from "../bench.ts";
import { runFleet, type Sharing } from "../contenders/fleet.ts";
import { interleaved, rate } from "../measure.ts";
import { POSTGRES, SQLITE, THREE_SHARING } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "../suites/suite.ts";
import type { OwnServer } from "./stores.ts";
import { startMachines } from "./work-processes.ts";

const SLOTS = 2;
const IDLE_MS = 5000;
const NOTHING = { before: async () => {}, after: async () => {} };

/** The same items in one process, and shared by three `corral work` and their coordinator on this one machine. */
export async function measuredSharing({ sizes, ours: [ours] }: Bench, server: OwnServer): ReturnType<Suite["measure"]> {
  const env = { CORRAL_QUEUE: server.server.url };
  await using store = await openFleetStore(ours.stateDir, ours.projectDir, env);
  if (store.work === null) throw new Error("this store has no machines");
  const [alone, sharing]: [Sharing, Sharing] = [
    { isShared: false },
    { isShared: true, transport: await transportBy(store.work, env) },
  ];
  const items = sizes.sharedItems;
  const one = await interleaved(
    [
      rate(SQLITE, items, () => runFleet(ours, "fresh", items, alone), NOTHING),
      rate(POSTGRES, items, () => runFleet({ ...ours, store }, "fresh", items, alone), NOTHING),
    ],
    sizes.storeRounds,
  );
  await using connection = await server.connection();
  const connections = async (): Promise<number> =>
    (
      await connection.query<{ n: number }>(
        "SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = 'corral'",
      )
    )[0]?.n ?? 0;
  const committed = async (): Promise<number> =>
    (await connection.query<{ n: number }>("SELECT sum(xact_commit)::int AS n FROM pg_stat_database"))[0]?.n ?? 0;
  const before = await connections();
  await using machines = await startMachines(3, { ours, env, slots: SLOTS });
  // A connection that has been used is kept for a while, and the server counts what has happened every second.
  await sleep(IDLE_MS);
  const idle = ((await connections()) - before) / machines.count;
  const [earlier, at] = [await committed(), performance.now()];
  await sleep(IDLE_MS);
  const perSecond = ((await committed()) - earlier) / ((performance.now() - at) / 1000);
  let most = 0;
  const looking = setInterval(() => void connections().then((now) => (most = Math.max(most, now))), 200);
  const shared = await interleaved(
    [rate(THREE_SHARING, items, () => runFleet({ ...ours, store }, "fresh", items, sharing), NOTHING)],
    sizes.storeRounds,
  ).finally(() => clearInterval(looking));
  return {
    groups: [
      groupOf("machines-shared", "Items that read their input, fresh cells", "items/s", [...one, ...shared]),
      groupOf(
        "machines-load",
        "An idle machine at the database",
        "a second",
        [{ name: "transactions", values: [perSecond / machines.count] }],
        "different",
      ),
      groupOf(
        "machines-connections",
        "Connections to the database",
        "connections",
        [
          { name: "an idle machine", values: [idle] },
          { name: "three machines at work and a coordinator", values: [most - 1] },
        ],
        "different",
      ),
    ],
    notes: [
      `Three machines are three \`corral work --concurrency ${SLOTS}\` on the processors that one process has alone, so sharing can only cost; on machines of their own they add up.`,
    ],
  };
}
