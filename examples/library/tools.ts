/** Uses a worker's tools as plain functions. A refusal says why, and what the worker may do instead. */
import { openProject } from "corral";

await using project = await openProject(import.meta.dirname, { env: process.env });
await using tools = await project.tools("scribe");

await tools.call.write_file({ path: "/notes/todo.txt", content: "read the paper\n" });
const listed = await tools.call.exec({ command: "wc -l < /notes/todo.txt; ls /notes" });
if (listed.ok) console.log(listed.text);

const refused = await tools.call.read_file({ path: "/etc/passwd" });
if (!refused.ok) console.log(refused.code, refused.message);

// Until now the change is staged. `close` applies it; without this call it would wait for a person's approval.
const settled = await tools.close();
for (const { path, kind, outcome } of settled?.changes ?? []) console.log(outcome, kind, path);
