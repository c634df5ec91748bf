import { unknownChangeset } from "../../operations/changesets.ts";
import { MAX_CHANGESETS } from "../../operations/contract/changesets.ts";
import { present } from "../../text/present.ts";
import type { Handlers } from "../http/route.ts";
import { tarOf } from "../http/tar.ts";
import type { Served } from "./owned.ts";

export function changesetHandlers({ projects, changesets }: Served): Handlers<"changesets"> {
  /** What belongs to no served project does not exist. @throws RequestError UNKNOWN_CHANGESET */
  const owned = async (id: string) => {
    const { mounts: _, project, ...found } = await changesets.show(id);
    const name = projects.nameOf(project);
    if (name === null) throw unknownChangeset(id, "there is no such changeset");
    return { ...found, project: name };
  };
  return {
    async "changesets.list"({ query: { project, worker, limit = MAX_CHANGESETS } }) {
      const names = new Map(projects.chosen(project).map(({ dir, name }) => [dir, name]));
      const all = (await changesets.list(null)).flatMap((one) => {
        const name = one.ok ? names.get(one.project) : undefined;
        if (!one.ok || name === undefined || (worker ?? one.worker) !== one.worker) return [];
        const { ok: _, ...rest } = one;
        return [{ ...rest, project: name }];
      });
      return { changesets: all.slice(0, limit), more: all.length > limit };
    },
    async "changesets.show"({ params: { changeset } }) {
      const found = await owned(changeset);
      return { ...found, diff: await changesets.diff(changeset) };
    },
    async "changesets.review"({ params: { changeset } }) {
      const { run, createdAt, project } = await owned(changeset);
      return { ...(await changesets.foresee(changeset)), run, createdAt, project };
    },
    async "changesets.files"({ params: { changeset } }) {
      await owned(changeset);
      const headers = { "content-disposition": `attachment; filename="${changeset}.tar"` };
      return { headers, pieces: tarOf(await changesets.files(changeset)) };
    },
    async "changesets.apply"({ params: { changeset }, body: { digest, only, which, hostExecuted = [] }, caller }) {
      await owned(changeset);
      const what = { ...present({ only, which }) };
      const how = { approval: "agreed", digest, by: caller.name, hostExecuted } as const;
      return await changesets.apply(changeset, { ...how, ...what });
    },
    async "changesets.discard"({ params: { changeset }, body, caller }) {
      await owned(changeset);
      await changesets.discard(changeset, { ...body, by: caller.name });
      return { id: changeset, outcome: "discarded" };
    },
  };
}
