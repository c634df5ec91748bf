import fs from "node:fs";
import os from "node:os";
import { join } from "node:path";

/** A folder of a test's own. Its path is free of links, as a mount's must be. */
export function temporaryFolder(): { readonly path: string; remove(): void } {
  const path = fs.realpathSync(fs.mkdtempSync(join(os.tmpdir(), "corral-files-")));
  return { path, remove: () => fs.rmSync(path, { recursive: true, force: true }) };
}
