/** Shows the container that a worker would get, before anything runs. */
import { openProject } from "corral";

await using project = await openProject(import.meta.dirname, { env: process.env });
const answer = await project.planFor("count");
if (!answer.ok) throw new Error(answer.message);
const { plan } = answer;
console.log(plan.image.name, plan.command, plan.network, plan.user);
for (const { path, mode, origin } of plan.mounts) console.log(mode, path, origin);
console.log(plan.limits);

const { ok, failing, warnings } = await project.check();
console.log(ok, failing, warnings);
