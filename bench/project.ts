import { chmod, chown, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** The work of one item: reads the item, and writes the output into the only folder that the worker sees. */
export const ITEM_SCRIPT = 'read -r x < /attachments/in; for d in /out/*; do echo "$x" > "$d/out"; done';
export const ECHO = ["echo", "begun"];

/** Cells run as this user if the project's folders belong to it. */
const WORKER_UID = 65532;
const OUT = { name: "out", mode: "rw", approval: "pre_approved" };
const WORKERS = {
  echo: { command: ECHO },
  item: { command: ["sh", "-c", ITEM_SCRIPT], sandbox: { zones: [OUT] } },
  reader: { command: ["sh", "-c", "read -r x; echo $x"] },
  caller: { command: ["corral-call", "echo"], calls: ["echo"] },
  place: {
    sandbox: { zones: [OUT] },
    limits: { disk: "4g", memory: "1g" },
    tools: ["exec", "read_file", "write_file"],
  },
  tools: { command: ["true"], sandbox: { zones: [OUT] }, shell_rules: { default: "pre_approved" } },
};

/** Writes a project of workers that do almost nothing, and the files of `items` items. */
export async function writeProject(dir: string, items: number, policy: string): Promise<void> {
  for (const folder of ["workers", "inbox", "out"]) await mkdir(join(dir, folder), { recursive: true });
  await chmod(dir, 0o755);
  const sandbox = { mode: "direct", zones: { out: { path: "./out", mode: "rw", approval: "pre_approved" } } };
  await writeFile(join(dir, "corral.yaml"), JSON.stringify({ version: 1, policy, sandbox }));
  for (const [name, worker] of Object.entries(WORKERS)) {
    const front = JSON.stringify({ name, image: "corral/base", ...worker });
    await writeFile(join(dir, "workers", `${name}.worker`), `---\n${front}\n---\n`);
  }
  for (let index = 0; index < items; index += 1) await writeFile(inputOf(dir, index), contentOf(index));
  if (process.getuid?.() === 0) await chown(join(dir, "out"), WORKER_UID, WORKER_UID);
}

export function inputOf(dir: string, index: number): string {
  return join(dir, "inbox", String(index));
}

export function contentOf(index: number): string {
  return `document ${index}\n`;
}
