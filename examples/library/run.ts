/** Runs a worker in its own container. It sees only the file that it is given, and has no network. */
import { join } from "node:path";
import { openProject } from "corral";

await using project = await openProject(import.meta.dirname, { env: process.env });
const result = await project.run("count", {
  attachments: [join(import.meta.dirname, "papers/paper.txt")],
  signal: AbortSignal.timeout(60_000),
  onEvent: (event) => console.log(event.type, event.worker),
});
console.log(result.status, result.output);
