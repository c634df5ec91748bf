/** The permission model by itself: which rights a child may get from its parent. Uses no disk, and needs no Engine. */
import { SandboxPermissionEscalationError, sandboxOf } from "corral/sandbox";

const program = sandboxOf({ mounts: { src: { host: "/srv/app/src", mode: "rw" }, docs: { host: "/srv/app/docs" } } });
const reader = program.derive({ allowRead: ["/src", "docs"] }, "reader");
console.log(reader.readableRoots, reader.writableRoots);
console.log(reader.canRead("/src/main.ts"), reader.canWrite("/src/main.ts"), reader.access("docs:index.md"));
console.log(reader.checkWrite("/src/main.ts")?.message);

try {
  reader.derive({ allowWrite: ["/src", "/docs"], network: true }, "greedy");
} catch (error) {
  if (!(error instanceof SandboxPermissionEscalationError)) throw error;
  for (const { code } of error.violations) console.log(code);
  console.log(error.message);
}
