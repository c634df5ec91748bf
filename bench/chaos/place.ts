import { randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Connection } from "../../src/fleet/postgres/connection.ts";
import { machineGrants } from "../../src/fleet/postgres/migrate.ts";
import { connectServer } from "../../src/fleet/postgres/server.ts";
import { Coordinator } from "./coordinator.ts";
import { type Link, makeLink, within } from "./links.ts";
import { Machine } from "./machine.ts";
import type { ChaosOptions } from "./options.ts";
import { Processes } from "./processes.ts";
import { makeProjects } from "./project.ts";
import { type QueueServer, startQueueServer } from "./queue-server.ts";
import { type SecondEngine, startSecondEngine } from "./second-engine.ts";

export const MACHINE_NAMES = ["one", "two", "three"] as const;
const IMAGE = "corral/base";

/** A queue, a coordinator and three machines, each with a network of its own. */
export interface ChaosPlace extends AsyncDisposable {
  readonly base: string;
  /** In the names of what is made outside of the folder. */
  readonly mark: string;
  readonly postgres: QueueServer;
  /** As the owner of the tables. */
  readonly db: Connection;
  readonly engine: SecondEngine | null;
  readonly coordinator: Coordinator;
  readonly machines: readonly Machine[];
}

export async function makePlace(options: ChaosOptions): Promise<ChaosPlace> {
  const stack = new AsyncDisposableStack();
  try {
    const mark = randomBytes(2).toString("hex");
    const base = mkdtempSync(join(tmpdir(), "corral-chaos-"));
    // The server of the database runs as another user.
    chmodSync(base, 0o711);
    if (!options.keep) stack.defer(() => rmSync(base, { recursive: true, force: true }));
    makeProjects(base, { ...options, names: MACHINE_NAMES });
    const links: Link[] = [];
    for (const index of MACHINE_NAMES.keys()) links.push(stack.use(await makeLink(mark, index)));
    const homeLink = stack.use(await makeLink(mark, links.length));
    const addresses = [...links, homeLink].map(({ address }) => address);
    const postgres = stack.use(await startQueueServer(join(base, "queue"), addresses));
    const db = stack.use(await connectServer(postgres.url));
    const engine = options.engines === 1 ? null : stack.use(await secondEngine(stack, base, mark));

    const queueAt = (link: Link, user: string): { CORRAL_QUEUE: string } => ({
      CORRAL_QUEUE: `postgres://${user}@${link.address}/postgres?sslmode=disable`,
    });
    const home = { name: "home", base, before: within(homeLink), env: queueAt(homeLink, "postgres") };
    const coordinator = new Coordinator(new Processes(home), homeLink, base);
    // Makes the tables, so that the role of machines can get its rights.
    coordinator.processes.start(["fleet", "ls"]);
    if ((await coordinator.processes.ended) !== 0) throw new Error(coordinator.processes.errors());
    await db.query("CREATE ROLE corral_machine LOGIN");
    for (const grant of machineGrants("corral_machine")) await db.query(grant);
    const machines = links.map((link, index) => {
      const name = MACHINE_NAMES[index] ?? "";
      const isSecond = engine !== null && name === "three";
      const own = isSecond ? { DOCKER_HOST: engine.host, CORRAL_DRIVER: "engine" } : {};
      const place = { name, base, before: within(link), env: { ...queueAt(link, "corral_machine"), ...own } };
      return new Machine(new Processes(place), link, ["--concurrency", String(options.concurrency)]);
    });
    // Before anything that they use is taken away.
    stack.defer(() => {
      for (const { processes } of [coordinator, ...machines]) {
        processes.kill("SIGCONT");
        processes.kill("SIGKILL");
      }
    });
    const owned = stack.move();
    const parts = { base, mark, postgres, db, engine, coordinator, machines };
    return { ...parts, [Symbol.asyncDispose]: () => owned.disposeAsync() };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function secondEngine(stack: AsyncDisposableStack, base: string, mark: string): Promise<SecondEngine> {
  const link = stack.use(await makeLink(mark, MACHINE_NAMES.length + 1));
  return await startSecondEngine(join(base, "engine"), { link, mark, images: [IMAGE] });
}
