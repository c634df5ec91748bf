/** Runs an agent: a model on the host, whose tools act in the sandbox. Here a script replaces the model. */
import { join } from "node:path";
import { openProject } from "corral";

await using project = await openProject(import.meta.dirname, { env: process.env });
const result = await project.run("scribe", { attachments: [join(import.meta.dirname, "papers/paper.txt")] });
console.log(result.status, result.output);
for (const { worker, status, output } of result.calls) console.log("called", worker, status, output);
for (const { path, kind, outcome } of result.changes) console.log(outcome, kind, path);
