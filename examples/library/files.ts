/** A sandbox's files without a project and an Engine: the checks and refusals of the file tools, on the host or in memory. */
import { openFiles, SandboxError, sandboxOf } from "corral/sandbox";

const approval = { write: "pre_approved", delete: "pre_approved" } as const;
const sandbox = sandboxOf({
  mounts: { notes: { host: "/srv/notes", mode: "rw", approval, suffixes: ["md"] }, docs: { host: "/srv/docs" } },
});
// With `backend: "host"` the same program works on /srv/notes and /srv/docs.
using files = openFiles(sandbox, { backend: "memory" });

await files.write("notes:todo.md", "- buy hay\n");
await files.edit("/notes/todo.md", [{ old: "buy", new: "mow" }]);
console.log(await files.read("/notes/todo.md"), (await files.list("/notes")).entries);
console.log(await files.info("/docs"));

for (const path of ["/notes/run.sh", "/docs/a.md", "/etc/passwd"]) {
  await files.write(path, "x").catch((error: unknown) => {
    if (!(error instanceof SandboxError)) throw error;
    console.log(error.code, error.message);
  });
}
