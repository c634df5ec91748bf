import { appendFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { QueueError } from "../../../src/fleet/model/queue.ts";
import { BegunLog } from "../../../src/fleet/postgres/postgres-queue.ts";

const attempt = (index: number, run = `run-${index}`) => ({ index, attempt: 1, run });

async function logWith(...indexes: number[]): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "corral-begun-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const path = join(dir, "begun", "fleet");
  for (const index of indexes) await new BegunLog(path, "fleet").add(attempt(index));
  return path;
}

it("knows each attempt that has begun, also after a line that was cut, which itself does not count", async () => {
  const path = await logWith(1, 23);
  const whole = await readFile(path);
  const first = (await readFile(await logWith(1))).length;
  for (let length = first; length < whole.length; length++) {
    await writeFile(path, whole.subarray(0, length));
    await new BegunLog(path, "fleet").add(attempt(4));
    const after = new BegunLog(path, "fleet");
    for (const index of [1, 4]) {
      await after.check(attempt(index));
      await expect(after.check(attempt(index, "again"))).rejects.toThrow(/^The queue is older than the files/);
    }
    for (const index of [2, 23]) await after.check(attempt(index, "again"));
  }
});

it("refuses a file with a whole line that it cannot read", async () => {
  const path = await logWith(1);
  await appendFile(path, "\n2 one run\n");
  const damaged = new BegunLog(path, "fleet");
  await expect(damaged.check(attempt(3))).rejects.toThrow(QueueError);
  await expect(damaged.add(attempt(3))).rejects.toThrow(
    /fleet is damaged: it lists which items of fleet fleet have begun/,
  );
});
