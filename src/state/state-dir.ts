import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";

/**
 * Where Corral keeps what it must remember between commands: `$CORRAL_STATE_DIR`, else `$XDG_STATE_HOME/corral`,
 * else `~/.local/state/corral`. Absolute; whoever writes there makes it, with mode 0700.
 *
 * A relative XDG_STATE_HOME is ignored, as the XDG base directory specification asks.
 */
export function stateDirFrom(env: Readonly<Record<string, string | undefined>>): string {
  if (env.CORRAL_STATE_DIR) return resolve(env.CORRAL_STATE_DIR);
  if (env.XDG_STATE_HOME && isAbsolute(env.XDG_STATE_HOME)) return join(env.XDG_STATE_HOME, "corral");
  return join(env.HOME || homedir(), ".local", "state", "corral");
}
