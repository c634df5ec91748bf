import { z } from "zod";
import { unknownChangeset } from "../../operations/changesets.ts";
import { type Route, route } from "../http/route.ts";
import { tarOf } from "../http/tar.ts";
import type { Served } from "./owned.ts";
import { changesetId, count, digest, inProject, more, projectName, time, workerName } from "./shapes.ts";

const MAX_LISTED = 1000;

const listed = z
  .looseObject({
    id: changesetId,
    run: z.string(),
    worker: z.string(),
    project: projectName,
    createdAt: time,
    applying: z.boolean(),
    counts: z.record(z.string(), z.int()),
  })
  .meta({ id: "ListedChangeset" });
const change = z
  .looseObject({
    index: z.int(),
    path: z.string(),
    kind: z.enum(["create", "modify", "delete"]),
    type: z.enum(["file", "directory", "link"]),
    outcome: z.string(),
    reason: z.string().nullable(),
    hostExecuted: z
      .string()
      .nullish()
      .describe("Why a program of the host would act on it by itself, so that no general yes covers it"),
  })
  .meta({ id: "Change" });
const shown = z
  .looseObject({
    id: changesetId,
    run: z.string(),
    worker: z.string(),
    project: projectName,
    createdAt: time,
    digest,
    changes: z.array(change),
    diff: z.string().describe("A unified diff with the files as they are now"),
    commits: z
      .array(z.string())
      .describe("Commits of git that the worker made and that wait, in words, which are the worker's own"),
    lookAlike: z.array(z.string()).describe("What of its names may be taken for something else, in words"),
  })
  .meta({ id: "Changeset" });
const amount = { files: z.int(), added: z.int(), removed: z.int(), bytes: z.int() };
const place = {
  path: z.string(),
  kind: z.enum(["create", "modify", "delete"]),
  type: z.enum(["file", "directory", "link"]),
};
const review = z
  .looseObject({
    id: changesetId,
    run: z.string(),
    worker: z.string(),
    project: projectName,
    createdAt: time,
    digest,
    waiting: z.int().describe("How many changes can still be applied"),
    total: z.object(amount),
    parts: z
      .array(
        z
          .looseObject({
            ...place,
            ...amount,
            indexes: z.array(z.int()).describe("For `which` of apply"),
            hostExecuted: z
              .string()
              .nullable()
              .describe("Why a program of the host would act on it by itself: then `apply` has to name its path"),
            lines: z.array(z.string()).describe("A unified diff; no line has a control character"),
            ruled: z
              .looseObject({ outcome: z.string(), reason: z.string() })
              .nullable()
              .describe("What the project's rules decide; null: a user decides"),
          })
          .meta({ id: "ReviewedPart" }),
      )
      .describe("What a user decides on: first what programs of the host would execute"),
    unfit: z
      .array(z.looseObject({ ...place, index: z.int(), outcome: z.enum(["refused", "conflict"]), reason: z.string() }))
      .describe("What cannot be applied now"),
    notShown: z.int().describe("Changes beyond the limit of a diff"),
    commits: z
      .array(z.string())
      .describe("Commits of git that the worker made and that wait, in words, which are the worker's own"),
    lookAlike: z.array(z.string()).describe("What of its names may be taken for something else, in words"),
  })
  .meta({ id: "Review" });
const inChangeset = z.strictObject({ changeset: changesetId });

export function changesetRoutes({ projects, changesets }: Served): Route[] {
  /** What belongs to no served project does not exist. @throws RequestError UNKNOWN_CHANGESET */
  const owned = async (id: string) => {
    const { mounts: _, project, ...found } = await changesets.show(id);
    const name = projects.nameOf(project);
    if (name === null) throw unknownChangeset(id, "there is no such changeset");
    return { ...found, project: name };
  };
  return [
    route(
      {
        method: "GET",
        path: "/v1/changesets",
        role: "read",
        summary: "List changes of runs that were not applied yet, the oldest first.",
        query: z.strictObject({
          ...inProject,
          worker: workerName.optional(),
          limit: count(1, MAX_LISTED).optional(),
        }),
        answers: { 200: z.object({ changesets: z.array(listed), more }).meta({ id: "ChangesetList" }) },
      },
      async ({ query: { project, worker, limit = MAX_LISTED } }) => {
        const dirs = new Set(projects.chosen(project).map(({ dir }) => dir));
        const all = (await changesets.list(null)).flatMap((one) => {
          if (!one.ok || !dirs.has(one.project) || (worker ?? one.worker) !== one.worker) return [];
          const { ok: _, ...rest } = one;
          return [{ ...rest, project: projects.nameOf(one.project) }];
        });
        return { status: 200, json: { changesets: all.slice(0, limit), more: all.length > limit } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/changesets/{changeset}",
        role: "read",
        summary: "Show a changeset with its diff, and the digest that a decision on it names.",
        params: inChangeset,
        answers: { 200: shown },
        faults: [404, 409, 500],
      },
      async ({ params: { changeset } }) => {
        const found = await owned(changeset);
        return { status: 200, json: { ...found, diff: await changesets.diff(changeset) } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/changesets/{changeset}/review",
        role: "read",
        summary:
          "Show what a changeset would do now, for a decision on each path: its diff, and what the project's rules decide.",
        params: inChangeset,
        answers: { 200: review },
        faults: [404, 409, 422, 500],
      },
      async ({ params: { changeset } }) => {
        const { run, createdAt, project } = await owned(changeset);
        return { status: 200, json: { ...(await changesets.foresee(changeset)), run, createdAt, project } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/changesets/{changeset}/files",
        role: "read",
        summary: "Send the files that it would write as a tar archive, without links.",
        params: inChangeset,
        isLasting: true,
        answers: { 200: { contentType: "application/x-tar", description: "Regular files and directories" } },
        faults: [404, 409, 500],
      },
      async ({ params: { changeset } }) => {
        await owned(changeset);
        const headers = { "content-disposition": `attachment; filename="${changeset}.tar"` };
        const pieces = tarOf(await changesets.files(changeset));
        return { status: 200, contentType: "application/x-tar", headers, pieces };
      },
    ),
    route(
      {
        method: "POST",
        path: "/v1/changesets/{changeset}/apply",
        role: "decide",
        summary:
          "Apply changes. Rules of the project that deny still deny; no conflict is overwritten. What has `hostExecuted` waits unless its path is named there too.",
        params: inChangeset,
        body: z.strictObject({
          digest,
          only: z
            .array(z.string().max(4096))
            .max(10_000)
            .optional()
            .describe("Paths; absent: all, an empty list: none"),
          which: z.array(z.int().min(0)).max(100_000).optional().describe("Indexes, in place of only"),
          hostExecuted: z
            .array(z.string().max(4096))
            .max(10_000)
            .optional()
            .describe("Paths of changes with `hostExecuted` that a person has agreed to, each by itself"),
        }),
        answers: {
          200: z
            .looseObject({ id: changesetId, changes: z.array(change), left: z.int() })
            .meta({ id: "AppliedChangeset" }),
        },
        faults: [404, 409, 415, 422, 500],
      },
      async ({ params: { changeset }, body: { digest: seen, only, which, hostExecuted = [] }, caller }) => {
        await owned(changeset);
        const what = { ...(only === undefined ? {} : { only }), ...(which === undefined ? {} : { which }) };
        const applied = await changesets.apply(changeset, {
          approval: "agreed",
          digest: seen,
          by: caller.name,
          hostExecuted,
          ...what,
        });
        return { status: 200, json: applied };
      },
    ),
    route(
      {
        method: "POST",
        path: "/v1/changesets/{changeset}/discard",
        role: "decide",
        summary: "Discard a changeset. What was applied before stays.",
        params: inChangeset,
        body: z.strictObject({ digest }),
        answers: { 200: z.object({ id: changesetId, outcome: z.literal("discarded") }) },
        faults: [404, 409, 415, 500],
      },
      async ({ params: { changeset }, body, caller }) => {
        await owned(changeset);
        await changesets.discard(changeset, { ...body, by: caller.name });
        return { status: 200, json: { id: changeset, outcome: "discarded" } };
      },
    ),
  ];
}
