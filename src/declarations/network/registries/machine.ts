import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { codeOf } from "../../../platform/errno.ts";
import type { Env } from "../../../secrets/read-secret.ts";

/** Where package tools of this machine have their settings. */
export interface Machine {
  /** Corral's own environment. The settings of its user are below `HOME`. */
  readonly env: Env;
  /** Where the settings of the whole system are: `/`. */
  readonly root: string;
}

/** Far more than any settings file has. */
const MAX_BYTES = 1024 * 1024;

/** The text of a settings file; null if there is none, or Corral may not read it, as the tool itself could not. */
export async function settingsAt(path: string | null): Promise<string | null> {
  if (path === null) return null;
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await file.stat();
    return found.isFile() && found.size <= MAX_BYTES ? await file.readFile("utf8") : null;
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "EACCES", "ELOOP"].includes(codeOf(error) ?? "")) return null;
    throw error;
  }
}

/** A place of the whole system. */
export function systemPlace({ root }: Machine, path: string): string {
  return join(root, path);
}

/** A place of the user; null without a home. */
export function userPlace({ env }: Machine, path: string): string | null {
  return env.HOME?.startsWith("/") ? join(env.HOME, path) : null;
}

/** A place among the user's settings, as most tools understand the base directory specification. */
export function configPlace(machine: Machine, path: string): string | null {
  const { XDG_CONFIG_HOME: base } = machine.env;
  return base?.startsWith("/") ? join(base, path) : userPlace(machine, join(".config", path));
}

/** A place that a variable names; null if it does not, or not by an absolute path, which would depend on a directory. */
export function namedPlace(path: string | undefined): string | null {
  return path?.startsWith("/") ? path : null;
}
