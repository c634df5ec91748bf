import { execFileSync } from "node:child_process";
import { join } from "node:path";

/** Set-up of the engine tier: what tests start as the command line is built from the sources that they load. */
export default function build(): void {
  execFileSync(process.execPath, [join(import.meta.dirname, "../../scripts/build.ts")], { stdio: "inherit" });
}
