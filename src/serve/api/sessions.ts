import type { Handlers } from "../http/route.ts";
import { refusePolicy, refuseStopping, type Served } from "./owned.ts";

export function sessionHandlers({ projects, sessions, over }: Served): Handlers<"sessions"> {
  return {
    async "sessions.open"({ body: { project, worker, policy }, caller }) {
      refuseStopping(over);
      refusePolicy(policy, caller);
      return await sessions.open(projects.named(project), worker, policy ?? null);
    },
    "sessions.list": async () => ({ sessions: sessions.all }),
    "sessions.show": async ({ params }) => sessions.find(params.session),
    "sessions.tools": async ({ params }) => ({ tools: sessions.toolsOf(params.session) }),
    async "sessions.use"({ params, body, gone }) {
      return await sessions.runTool(params.session, params.tool, body, AbortSignal.any([gone, over]));
    },
    async "sessions.close"({ params: { session: id } }) {
      const settled = await sessions.finish(id);
      const { changes = [], changeset = null, failure = null } = settled ?? {};
      return { id, changes, changeset, error: failure?.error ?? null };
    },
  };
}
