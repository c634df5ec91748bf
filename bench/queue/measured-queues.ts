import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import type { Bench } from "../bench.ts";
import { interleaved, type Series } from "../measure.ts";
import { amongItems, MANY_MACHINES, POSTGRES, SQLITE, sideBySide } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "../suites/suite.ts";
import { costing, processorOf, ratesOf } from "./costing.ts";
import { emptyFleet, emptyItems, emptyItemsElsewhere } from "./empty-items.ts";
import { type OwnServer, ownMs, ownServer, serverMs, sqliteStore } from "./stores.ts";

const WIDTH = 64;
const SMALL_WIDTHS = [1, 4, 16];
/** Small fleets are repeated until so many items were given out. */
const LEAST_ITEMS = 2000;
/** The same where their cost is compared with that of large ones, which are measured once. */
const LEAST_GROWTH_ITEMS = 10_000;
const KILOBYTE = 1000;

interface Place {
  readonly name: string;
  readonly store: FleetStore;
  readonly usedMs: () => number;
}

/** Items that nothing runs: what a store of fleets itself takes and costs. */
export async function measuredQueues({ sizes }: Bench, server: OwnServer): ReturnType<Suite["measure"]> {
  await using opened = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "corral-bench-queue-"));
  opened.defer(() => rm(dir, { recursive: true, force: true }));
  const unsafe = opened.use(await ownServer(false));
  const place = async (name: string, store: Promise<FleetStore>, usedMs: () => number): Promise<Place> => {
    return { name, store: opened.use(await store), usedMs };
  };
  const sqlite = await place(SQLITE, sqliteStore(dir), ownMs);
  const postgres = await place(POSTGRES, server.connect(), () => ownMs() + serverMs(server));
  const quick = await place("PostgreSQL without fsync", unsafe.connect(), () => ownMs() + serverMs(unsafe));
  const machines: FleetStore[] = [];
  for (const self of ["one", "two", "three"]) machines.push(opened.use(await server.connect(self)));

  const empty = ({ store, usedMs }: Place, items: number, width: number, name: string, least = LEAST_ITEMS) =>
    costing(name, items * Math.max(1, least / items), usedMs, async () => {
      const fleets: string[] = [];
      for (let done = 0; done < Math.max(items, least); done += items)
        fleets.push(await emptyFleet(store, items, false));
      return async () => {
        for (const fleet of fleets) await emptyItems(store, fleet, width);
      };
    });
  const elsewhere = costing(MANY_MACHINES, sizes.queueItems, postgres.usedMs, async () => {
    const fleet = await emptyFleet(postgres.store, sizes.queueItems, true);
    return async () => await emptyItemsElsewhere(postgres.store, fleet, machines, sizes.queueItems);
  });
  const rates = await interleaved(
    [
      ...[sqlite, postgres, quick].map((at) => empty(at, sizes.queueItems, WIDTH, sideBySide(at.name, WIDTH))),
      ...SMALL_WIDTHS.map((width) => empty(postgres, LEAST_ITEMS, width, sideBySide(POSTGRES, width))),
      elsewhere,
    ],
    sizes.queueRounds,
  );
  const among = (at: Place, items: number) =>
    empty(at, items, WIDTH, `${at.name}: ${amongItems(items)}`, LEAST_GROWTH_ITEMS);
  const growth = await interleaved(
    [sqlite, postgres].flatMap((at) => sizes.queueGrowth.map((items) => among(at, items))),
    1,
    0,
  );
  const bytes = await bytesPerItem(server);
  return {
    groups: [
      groupOf("queue", "Empty items that a store gives out and takes back", "items/s", ratesOf(rates)),
      groupOf("queue-processor", "Processor time of an empty item", "µs", processorOf(rates)),
      groupOf(
        "queue-growth",
        "An empty item, by the size of its fleet",
        "µs",
        ratesOf(growth).map(asTimes),
        "different",
      ),
      groupOf(
        "queue-size",
        "Size of the database",
        "KB",
        [{ name: "an empty item", values: [bytes / KILOBYTE] }],
        "different",
      ),
    ],
    notes: [
      `Of empty items: as many are claimed and recorded at once as the row says, each by itself, and what comes at the same time is one transaction. Three machines claim 16 at once and deliver each by itself, and the coordinator records them; all four are in one process here.`,
      "Processor time is user and system time of Corral's process and of the database's server, without cells.",
    ],
  };
}

function asTimes({ name, values }: Series): Series {
  return { name, values: values.map((rate) => 1e6 / rate) };
}

async function bytesPerItem(server: OwnServer): Promise<number> {
  await using connection = await server.connection();
  const [row] = await connection.query<{ bytes: number }>(
    `SELECT (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
       WHERE n.nspname = 'corral' AND c.relkind = 'r')::float8 / (SELECT count(*) FROM corral.items) AS bytes`,
  );
  return row?.bytes ?? Number.NaN;
}
