import { serverPrograms } from "../../test/fleet/postgres/server-fixture.ts";
import { measuredFleets } from "../queue/measured-fleets.ts";
import { measuredQueues } from "../queue/measured-queues.ts";
import { measuredSharing } from "../queue/measured-sharing.ts";
import { ownServer } from "../queue/stores.ts";
import type { Suite } from "./suite.ts";

/** What a database costs in place of SQLite's journal: the queue alone, whole fleets, and machines that share one. */
export const MACHINES: Suite = {
  async measure(bench) {
    if (serverPrograms() === null)
      return { groups: [], notes: ["PostgreSQL was not measured: apt-get install postgresql."] };
    const parts: Awaited<ReturnType<Suite["measure"]>>[] = [];
    for (const measured of [measuredQueues, measuredFleets, measuredSharing]) {
      await using server = await ownServer(true);
      parts.push(await measured(bench, server));
    }
    return {
      groups: parts.flatMap(({ groups }) => groups),
      notes: [
        "PostgreSQL is a server of its own on this machine, on the same disk, with fsync; it is reached by a socket.",
        ...parts.flatMap(({ notes = [] }) => notes),
      ],
    };
  },
};
