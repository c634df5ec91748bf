import { chownSync, cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const WORKER_UID = 65_532;
/** So that no directory has too many files. */
const FOLDERS = 100;

/**
 * The name of the file says which attempt wrote it, so an effect of another attempt is another file; its content says how often.
 * Only words of the shell itself: the items are cheap.
 */
const script = (itemMs: number): string =>
  [
    // The input is {"n":"7"}.
    `IFS=':"}' read -r _ _ _ _ n _`,
    ...(itemMs > 0 ? [`sleep ${itemMs / 1000}`] : []),
    `echo "$CORRAL_RUN" >> /out/$((n % ${FOLDERS}))/$n-$CORRAL_RUN`,
  ].join("; ");

/** `home` has the project and its items; each of the others has a copy. */
export function makeProjects(
  base: string,
  { items, itemMs, names }: { readonly items: number; readonly itemMs: number; readonly names: readonly string[] },
): void {
  const home = join(base, "home");
  mkdirSync(join(home, "workers"), { recursive: true });
  for (let folder = 0; folder < FOLDERS; folder += 1) mkdirSync(join(home, "out", String(folder)), { recursive: true });
  const zones = { out: { path: "./out", mode: "rw" } };
  writeFileSync(
    join(home, "corral.yaml"),
    JSON.stringify({ version: 1, policy: "batch", sandbox: { mode: "direct", zones } }),
  );
  const worker = {
    command: ["sh", "-c", script(itemMs)],
    sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved", stage: true }] },
  };
  writeFileSync(join(home, "workers/mark.worker"), `---\n${JSON.stringify(worker)}\n---\n`);
  for (const name of names) cpSync(home, join(base, name), { recursive: true });
  for (const folder of ["", ...Array.from({ length: FOLDERS }, (_, n) => String(n))])
    chownSync(join(home, "out", folder), WORKER_UID, WORKER_UID);
  writeFileSync(join(base, "items.jsonl"), Array.from({ length: items }, (_, n) => `{"n":"${n}"}\n`).join(""));
}
