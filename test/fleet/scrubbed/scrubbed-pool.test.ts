import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startFleet } from "../../../src/fleet/fleet.ts";
import type { RunEvent } from "../../../src/run/model/events.ts";
import { sh, writable } from "../../run/project-fixture.ts";
import { openFleetProject, SPEC, whole } from "../fleet-fixture.ts";

/** The last one has a file that takes hours to copy. */
async function* items(sparse: string) {
  for (const [index, attachments] of [[], [], [], [{ name: "in", path: sparse }]].entries())
    yield { index, key: `${index}`, place: `item ${index}`, attachments, allowWrite: [`/text/${index}`] };
}

describe("a scrubbed cell that cannot be emptied", () => {
  it("is thrown away, and why is told; the next item has another cell; a copy for an item is told, and can be stopped", async () => {
    await using f = await openFleetProject({
      zones: { text: "rw" },
      workers: { w: { command: sh("echo done"), sandbox: { zones: [writable("text")] } } },
    });
    const { environment } = f.project.corral;
    const troubles: RunEvent[] = [];
    const sparse = join(f.project.dir, "sparse");
    writeFileSync(sparse, "");
    truncateSync(sparse, 2 ** 43);
    const stop = new AbortController();
    const reading: string[] = [];
    let stays: string | null = null;
    const emit = (event: RunEvent): void => {
      environment.emit(event);
      if (event.type === "started" && stays === null) {
        // What another program of the host's mounted there cannot be removed with the rest.
        const cell = readdirSync(environment.ownerDir).find((name) => name.endsWith(".cell")) ?? "";
        stays = join(environment.ownerDir, cell, "attachments", "stays");
        mkdirSync(stays);
        execFileSync("mount", ["-t", "tmpfs", "corral-test", stays]);
      } else if (event.type === "trouble") {
        troubles.push(event);
        execFileSync("umount", [stays ?? ""]);
      }
    };
    const { results } = await whole(
      await startFleet({ ...SPEC, reuse: "scrubbed", concurrency: 1 }, items(sparse), {
        run: { ...environment, emit },
        store: f.journal,
        onEvent: (event) => {
          if (event.type !== "reading") return;
          reading.push(event.key);
          stop.abort(new Error("seen"));
        },
        stop: stop.signal,
      }),
    );
    expect([...results.values()].map(({ status, output }) => `${status}: ${output}`)).toEqual(
      Array.from({ length: 3 }, () => "succeeded: done\n"),
    );
    expect(reading).toEqual(["3"]);
    const told = expect.stringMatching(/^a cell is discarded, since an item's files in it could not be removed: EBUSY/);
    expect(troubles).toMatchObject([{ run: results.get("0")?.run, worker: "w", detail: told }]);
    const cells = f.project.events.flatMap((event) => (event.type === "started" ? [event.plan.run] : []));
    expect([cells[0] === cells[1], cells[1] === cells[2]]).toEqual([false, true]);
  });
});
