/** Reads what Corral keeps of a project: fleets, pending changes, the audit trail. None of it needs an Engine. */
import { openProject, RequestError } from "corral";

await using project = await openProject(import.meta.dirname, { env: process.env });
for (const { id, state, counts } of await project.fleets.list(5)) console.log(id, state, `${counts.done} done`);
for (const one of await project.changesets.list()) console.log(one.id, one.ok ? one.counts : one.reason);
console.log("grants:", (await project.grants.list()).length);

const { records } = await project.audit.newest(5, { type: "run_ended" });
for (const { run, status } of records) console.log("ended", run, status);
console.log("audit trail:", (await project.audit.verify())?.ok ?? "nothing is recorded");

await project.fleets.show("no-such-fleet").catch((error: unknown) => {
  if (error instanceof RequestError) console.log(error.code, error.asked);
});
