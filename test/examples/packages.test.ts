import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { openProject } from "../../src/library/opened-project.ts";
import { checkProject } from "../../src/operations/implied-project.ts";
import { liveRegistry } from "../run/packages/live-registry.ts";
import { giveGate } from "../tiers/give-gate.ts";

const EXAMPLE = join(import.meta.dirname, "../../examples/packages");
const live = await liveRegistry("npm", "is-number");
if (typeof live === "string") console.log(`The example of packages is not run: its registry: ${live}.`);

async function temporary(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "packages-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

describe("the example of packages", () => {
  it("is a project without mistakes, of which no worker would be refused", async () => {
    const report = await checkProject(EXAMPLE, { stateDir: await temporary(), engineEnv: process.env });
    expect(report).toMatchObject({ ok: true });
  });

  it.skipIf(typeof live === "string")("installs what its lock file names, and prints what its page says", async () => {
    const dir = await temporary();
    await giveGate(join(dir, "s"));
    await cp(EXAMPLE, join(dir, "p"), { recursive: true });
    // A mirror may be at an address that is not public.
    const address = typeof live === "string" ? "" : live.address;
    const packages = `packages: [{ kind: npm, addresses: [${address}/32] }]`;
    for (const [name, before] of [
      ["corral.yaml", "packages: [npm]"],
      ["workers/install.worker", "network: {"],
    ] as const) {
      const text = await readFile(join(dir, "p", name), "utf8");
      expect(text).toContain(before);
      const after = before.startsWith("packages") ? packages : `${before} ${packages},`;
      await writeFile(join(dir, "p", name), text.replace(before, after));
    }
    await using project = await openProject(join(dir, "p"), { env: process.env, stateDir: join(dir, "s") });
    const result = await project.run("install");
    const page = await readFile(join(EXAMPLE, "README.md"), "utf8");
    expect(result.stdout, result.stderr).toBe(/```text\n(.*?)```/s.exec(page)?.[1]);
    expect(result.network?.denied.map(({ reason }) => reason).sort()).toEqual(["method", "path"]);
  });
});
