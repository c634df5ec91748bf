import { spawn } from "node:child_process";
import { extname, join } from "node:path";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import type { OpenOptions } from "./options.ts";

/**
 * Waits for the end of this process in a process of its own, which no signal to this one reaches. If this process was killed,
 * the limits of its cells are no longer watched, so `corral reap` removes the cells. The other times are for cells that the Engine was
 * still starting, and for an Engine that does not answer, since it is slow or is started again: no call to it takes longer.
 */
const WATCH = `read -r word; [ "$word" = over ] && exit
for pause in 0.5 2 5 5 10 20 40 60; do sleep "$pause"; [ -d "$CORRAL_STATE_DIR" ] || exit; "$@" reap; done`;

/** From the root, because the folder of this module is another one in the bundle. */
const COMMAND_LINE = join(
  PACKAGE_ROOT,
  extname(import.meta.filename) === ".ts" ? "src/cli/corral.ts" : "dist/cli/corral.cjs",
);

/** What the program needs of the environment to reach the same Engine, and to start as quickly. */
const NAMED = /^(PATH|HOME|NODE_COMPILE_CACHE|DOCKER_.*)$/;

/** Disposing says that nothing is left to remove. */
export function watchOwnDeath({ stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">): Disposable {
  const named = Object.keys(engineEnv).filter((name) => NAMED.test(name));
  const env = Object.fromEntries(named.map((name) => [name, engineEnv[name]]));
  const watch = spawn("/bin/sh", ["-c", WATCH, "corral-watch", process.execPath, COMMAND_LINE], {
    cwd: "/",
    detached: true,
    env: { ...env, CORRAL_STATE_DIR: stateDir },
    stdio: ["pipe", "ignore", "ignore"],
  });
  // Without it, the next Corral removes what this one left.
  for (const source of [watch, watch.stdin]) source.on("error", () => {});
  watch.unref();
  (watch.stdin as { unref?(): void }).unref?.();
  return { [Symbol.dispose]: () => void watch.stdin.end("over\n") };
}
