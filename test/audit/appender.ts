/**
 * A process that appends to a trail, for tests to run beside others and to kill. Its one argument is JSON,
 * `{stateDir, projectDir, name, count, size}`; without a `count` it appends until it is killed. Prints a line for each
 * record of which it was told that it is on disk.
 */
import { openTrail } from "../../src/run/recorded/run-history.ts";

const {
  stateDir,
  projectDir,
  name,
  count,
  size = 1,
} = JSON.parse(process.argv[2] ?? "") as {
  stateDir: string;
  projectDir: string;
  name: string;
  count?: number;
  size?: number;
};

await using trail = await openTrail(stateDir, projectDir);
async function append(index: number): Promise<void> {
  const run = `${name}-${index}`;
  await trail.append({
    type: "run_requested",
    run,
    root: run,
    worker: name,
    parent: null,
    attachments: ["x".repeat(size)],
  });
  process.stdout.write(`${run}\n`);
}

if (count !== undefined) await Promise.all(Array.from({ length: count }, (_, index) => append(index)));
else
  for (let index = 0; ; index += 20)
    await Promise.all(Array.from({ length: 20 }, (_, offset) => append(index + offset)));
