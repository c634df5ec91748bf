import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openProject, sh, writable } from "./project-fixture.ts";

it("fifty runs at once all end, each with its own input and output, and nothing is left behind", async () => {
  const script = `n=$(cat); echo "out $n"; echo "err $n" >&2; echo "$n" > "/out/$n"; exit $((n % 3))`;
  await using project = await openProject({
    workers: { w: { command: sh(script), sandbox: { zones: [writable("out")] } } },
    zones: { out: "rw" },
  });
  const numbers = Array.from({ length: 50 }, (_, index) => index);
  const results = await Promise.all(numbers.map((input) => project.run("w", { input })));
  expect(results.map(({ stdout, stderr, exitCode }) => [stdout, stderr, exitCode])).toEqual(
    numbers.map((n) => [`out ${n}\n`, `err ${n}\n`, n % 3]),
  );
  expect(new Set(results.map(({ run }) => run)).size).toBe(50);
  const written = await readdir(join(project.dir, "out"));
  expect(written).toHaveLength(50);
  for (const name of written) expect(await readFile(join(project.dir, "out", name), "utf8")).toBe(`${name}\n`);
  expect(project.events.filter(({ type }) => type === "ended")).toHaveLength(50);
  expect(await project.traces()).toEqual([]);
});
