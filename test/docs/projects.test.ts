import { chown, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

const ROOT = join(import.meta.dirname, "../..");

let dir: string | null = null;

afterEach(async () => {
  if (dir !== null) await rm(dir, { recursive: true });
});

/** Makes the project of a page as its reader would: the files that name themselves, and the line that makes folders. */
async function projectOf(page: string): Promise<string> {
  const text = await readFile(join(ROOT, page), "utf8");
  const made = await mkdtemp(join(tmpdir(), "corral-page-"));
  dir = made;
  for (const [, block = ""] of text.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)) {
    const file = /^# (corral\.yaml|workers\/[\w-]+\.worker)$/m.exec(block)?.[1];
    if (file === undefined) continue;
    await mkdir(dirname(join(made, file)), { recursive: true });
    await writeFile(join(made, file), block);
  }
  const [, folders = "", owner = "", owned = ""] =
    /^mkdir ([\w ]+?)(?: # as root also `chown (\d+:\d+) ([\w ]+)`.*)?$/m.exec(text) ?? [];
  for (const folder of folders.split(" ")) await mkdir(join(made, folder), { recursive: true });
  if (process.getuid?.() !== 0 || owner === "") return made;
  const [uid = 0, gid = 0] = owner.split(":").map(Number);
  for (const folder of owned.split(" ")) await chown(join(made, folder), uid, gid);
  return made;
}

describe("the project of a page", () => {
  it.each(["README.md", "docs/mcp.md"])("in %s would run as it is printed, also for root", async (page) => {
    const project = await projectOf(page);
    let text = "";
    const stream = { write: (piece: string) => (text += piece) };
    const env = { CORRAL_STATE_DIR: join(project, "state") };
    const terminal = { env, cwd: project, stdout: stream, stderr: stream } as unknown as Terminal;
    const status = await main(["check", "--project", project, "--json"], terminal);
    expect(JSON.parse(text)).toMatchObject({ ok: true, problems: [], failing: [], workers: 1 });
    expect(status).toBe(0);
  });
});
