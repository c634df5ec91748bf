import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { runFleet } from "../../src/operations/run-fleet.ts";
import { sh } from "../run/project-fixture.ts";
import { type FleetFixture, openFleetProject } from "./fleet-fixture.ts";

/** Its input is what it writes in a folder of its own; `pipe` also leaves what is always refused, `fail` fails. */
const SCRIPT = `read -r json; it=$(echo "$json" | tr -d '"'); mkdir -p /out/"$it"; echo "$it" > /out/"$it"/f; echo printed
case $it in pipe*) mkfifo /out/"$it"/p;; fail*) exit 1;; esac`;

function project(approval: unknown = {}): Promise<FleetFixture> {
  return openFleetProject({
    workers: { w: { command: sh(SCRIPT), sandbox: { zones: [{ name: "out", mode: "rw", approval: "ask" }] } } },
    zones: { out: "rw" },
    files: { "out/keep": "" },
    yaml: { approval },
  });
}

const items = (...keys: string[]) => keys.map((key) => ({ key, input: key }));

describe("a fleet whose items' changes wait for consent", () => {
  it("ends as pending: such items are no failures, say which changeset waits, and count for no limit of failures", async () => {
    await using f = await project();
    const { summary, results } = await f.map({ maxFailures: 0 }, items("a", "b", "pipe"));
    expect(summary).toMatchObject({ state: "pending", why: null, done: 3, byStatus: { pending: 3 }, byReason: {} });
    const a = results.get("a");
    expect(a).toMatchObject({ exitCode: 0, output: "printed\n", error: { code: "CHANGES_HELD" } });
    expect(a?.changeset).toMatchObject({ id: a?.run, counts: { held: 2, denied: 0, applied: 0, refused: 0 } });
    expect(results.get("pipe")?.changeset).toMatchObject({ counts: { held: 2, refused: 1 } });
    expect(f.journal.find(summary.fleet)).toMatchObject({
      state: "pending",
      counts: { failed: 0, pending: 3, done: 3 },
    });
    expect(f.journal.lastFailures(summary.fleet, 9)).toEqual([]);
    expect([...f.journal.failed(summary.fleet)]).toEqual([]);
    expect(readdirSync(join(f.project.dir, "out"))).toEqual(["keep"]);
  });

  it("is not retried, and what failed beside it is", async () => {
    await using f = await project();
    const { summary } = await f.map({}, items("a", "fail"));
    expect(summary).toMatchObject({ state: "pending", byStatus: { pending: 1, failed: 1 }, byReason: { FAILED: 1 } });
    expect([...f.journal.failed(summary.fleet)].map(({ key }) => key)).toEqual(["fail"]);
    const alone = await f.map({}, items("b"));
    const retried = runFleet(f.project.corral, { kind: "retry", fleet: alone.summary.fleet });
    await expect(retried.next()).rejects.toMatchObject({ code: "FLEET_REFUSED", message: /no failed items/ });
  });

  it("runs again in a later fleet: what waits is no cached success", async () => {
    await using f = await project();
    const own = (key: string) => ({ ...items(key)[0], allowWrite: [`/out/${key}`] });
    const first = await f.map({ cache: true }, [own("a")]);
    const second = await f.map({ cache: true }, [own("a")]);
    expect([first, second].map(({ summary }) => summary.byStatus)).toEqual([{ pending: 1 }, { pending: 1 }]);
    expect(existsSync(join(f.project.dir, "out/a"))).toBe(false);
  });

  it("has failed where a rule of the project denies: nobody is waited for", async () => {
    await using f = await project({ rules: [{ paths: ["/out/**"], decide: "deny", why: "never" }] });
    const { summary, results } = await f.map({}, items("a"));
    expect(summary).toMatchObject({ state: "done", byStatus: { denied: 1 }, byReason: { APPROVAL_DENIED: 1 } });
    expect(results.get("a")?.changeset).toMatchObject({ counts: { denied: 2, held: 0 } });
  });
});
