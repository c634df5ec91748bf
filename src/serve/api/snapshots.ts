import { MAX_DIFFERENCES } from "../../operations/contract/sessions.ts";
import type { Session } from "../../run/session/session.ts";
import type { SessionSnapshots } from "../../run/session/session-snapshots.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { Handlers } from "../http/router.ts";
import { refuseStopping, type Served } from "./owned.ts";

export function snapshotHandlers({ sessions, over }: Pick<Served, "sessions" | "over">): Handlers<"snapshots"> {
  const within = <T>(id: string, act: (snapshots: SessionSnapshots) => Promise<T>): Promise<T> =>
    sessions.within(id, async (session) => await act(snapshotsOf(session)));
  return {
    async "snapshots.list"({ params: { session } }) {
      return { snapshots: await sessions.look(session, (one) => snapshotsOf(one).list()) };
    },
    async "snapshots.take"({ params: { session }, body: { name = null } }) {
      refuseStopping(over);
      return await within(session, (snapshots) => snapshots.take(name));
    },
    async "snapshots.remove"({ params: { session, snapshot } }) {
      return await within(session, (snapshots) => snapshots.remove(snapshot));
    },
    async "snapshots.restore"({ params: { session, snapshot } }) {
      refuseStopping(over);
      return await within(session, (snapshots) => snapshots.restore(snapshot));
    },
    async "snapshots.diff"({ params: { session, snapshot }, gone }) {
      const signal = AbortSignal.any([gone, over]);
      const all = await within(session, (snapshots) => snapshots.differences(snapshot, signal));
      return { differences: all.slice(0, MAX_DIFFERENCES), more: all.length > MAX_DIFFERENCES };
    },
  };
}

/** @throws ToolRefusal */
function snapshotsOf({ snapshots }: Session): SessionSnapshots {
  if (snapshots === null) throw new ToolRefusal("SNAPSHOT_REFUSED", "This session takes no snapshots.");
  return snapshots;
}
