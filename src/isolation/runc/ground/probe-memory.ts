import { readFileSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { PACKAGE_ROOT } from "../../../declarations/place/package-root.ts";
import { parseJson } from "../../../json/parse-json.ts";
import { nullFor } from "../../../platform/errno.ts";
import { sha256 } from "../../../platform/sha256.ts";
import { writeAtomically } from "../../../platform/write-file.ts";
import { makeClosedDir } from "../../../state/state-dir.ts";
import type { Conditions } from "./conditions.ts";

/** What came of a cell that was made to see whether runc can make any. */
export type Probed = { readonly ok: true } | { readonly ok: false; readonly reason: string };

const Remembered = z.object({ of: z.string(), at: z.number(), ok: z.boolean(), reason: z.string() });

/** What failed may have failed because the machine was busy. */
const FAILURE_MS = 24 * 3_600_000;

/** What came of the last probe under the same conditions; null if there was none, or if it is time for another. */
export async function rememberedProbe(file: string, of: string, nowMs: number): Promise<Probed | null> {
  const text = await readFile(file, "utf8").catch(nullFor("ENOENT"));
  const parsed = parseJson(text ?? "");
  const known = Remembered.safeParse(parsed.ok ? parsed.value : undefined).data;
  if (known === undefined || known.of !== of) return null;
  if (known.ok) return { ok: true };
  return nowMs - known.at < FAILURE_MS && known.at <= nowMs ? { ok: false, reason: known.reason } : null;
}

export async function rememberProbe(file: string, of: string, probed: Probed, nowMs: number): Promise<void> {
  await makeClosedDir(join(file, ".."));
  const reason = probed.ok ? "" : probed.reason;
  await writeAtomically(file, JSON.stringify({ of, at: nowMs, ok: probed.ok, reason }));
}

/** Names all on which the outcome depends: the kernel, the programs, the Engine, and Corral itself. */
export function probeConditions({ programs, apparmor }: Conditions, engineVersion: string): string {
  const files = Object.values(programs).map((path) => {
    const { ino, size, mtimeMs } = statSync(path);
    return [path, ino, size, mtimeMs];
  });
  const corral = readFileSync(join(PACKAGE_ROOT, "package.json"), "utf8");
  return sha256(JSON.stringify([release(), files, apparmor, engineVersion, corral]));
}
