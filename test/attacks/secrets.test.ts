import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { shownCell } from "../run/outside-cell.ts";
import { openProject, type ProjectSpec, sh } from "../run/project-fixture.ts";
import { isAgain } from "../tiers/again.ts";

/**
 * Looks for a text everywhere it can: in its environment, in that of every process that it sees, and in every file
 * that it can read. It is told the text in two halves, so as not to find its own question.
 */
const SEARCH = `
  text=$(jq -r 'add'); printf %s "$text" > /tmp/text
  env | grep -c -F -f /tmp/text
  cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -F -f /tmp/text
  grep -rlsF -f /tmp/text / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev | grep -v '^/tmp/text$'
  echo end; sleep 1`;

it("a secret of the orchestrator's environment, or of a file that was not granted, is nowhere in a cell", async () => {
  const canary = `canary-${randomBytes(12).toString("hex")}`;
  const outside = await mkdtemp(join(tmpdir(), "corral-outside-"));
  await writeFile(join(outside, "secret"), canary);
  process.env.CORRAL_TEST_CANARY = canary;
  try {
    const spec: ProjectSpec = {
      workers: {
        boss: {
          command: sh(
            `cat > /tmp/in; corral-call spy "$(cat /tmp/in)"; sh -c '${SEARCH.replaceAll("'", "'\\''")}' < /tmp/in`,
          ),
          calls: ["spy"],
        },
        spy: { command: sh(SEARCH), sandbox: { zones: [{ name: "docs" }] } },
      },
      zones: { docs: "ro", other: "ro" },
      files: { "docs/open": "nothing", "other/closed": canary, "not-a-zone/file": canary },
    };
    await using project = await openProject(spec);
    const running = project.run("spy", { input: [canary.slice(0, 9), canary.slice(9)] });
    await project.printed("spy", "end");
    const { run } = project.events[0] ?? { run: "" };
    const shown = (await (await shownCell(project.stateDir, run))?.texts()) ?? [];
    // The search sees what is there: where its own question is, and this alone.
    expect(shown.join()).toContain("/.corral/");
    expect(shown.filter((text) => text.includes(canary))).toEqual([]);
    expect((await running).stdout).toBe("0\n0\nend\n");
    expect(JSON.stringify(project.planOf("spy"))).not.toContain(canary);
  } finally {
    delete process.env.CORRAL_TEST_CANARY;
    await rm(outside, { recursive: true, force: true });
  }
});

// The search is one program in one image, whatever makes the cell.
it.skipIf(isAgain())("a text that was granted is found by the same search", async () => {
  const worker = { command: sh(SEARCH), sandbox: { zones: [{ name: "docs" }] }, env: { GIVEN: "canary-given" } };
  await using project = await openProject({
    workers: { spy: worker },
    zones: { docs: "ro" },
    files: { "docs/open": "canary-given" },
  });
  const { stdout } = await project.run("spy", { input: ["canary-", "given"] });
  expect(stdout).toMatch(/^1\n[1-9]\d*\n\/docs\/open\nend\n$/);
});
