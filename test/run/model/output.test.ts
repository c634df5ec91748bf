import { describe, expect, it } from "vitest";
import { BoundedOutput } from "../../../src/run/model/job.ts";
import { openProject, python, sh } from "../project-fixture.ts";

describe("the bound on what a worker prints", () => {
  it.each([
    ["standard output", "head -c 3000 /dev/zero | tr '\\0' o", { stdout: "o".repeat(1000), stderr: "" }],
    ["standard error", "head -c 3000 /dev/zero | tr '\\0' e >&2", { stdout: "", stderr: "e".repeat(1000) }],
  ])("ends a worker with %s over it, and keeps exactly as much as the bound", async (_, script, kept) => {
    await using project = await openProject({
      workers: { w: { command: sh(`${script}; sleep 60`), limits: { output: "1000" } } },
    });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "output_limit", truncated: true, ...kept, error: { code: "OUTPUT_LIMIT" } });
    expect(await project.traces()).toEqual([]);
  });

  it("holds for both streams together", async () => {
    const script = "printf %600s o; sleep 0.2; printf %600s e >&2; sleep 60";
    await using project = await openProject({ workers: { w: { command: sh(script), limits: { output: "1000" } } } });
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "output_limit", truncated: true });
    expect([result.stdout.length, result.stderr.length]).toEqual([600, 400]);
  });

  it("lets a worker print exactly as much", async () => {
    await using project = await openProject({
      workers: { w: { command: sh("printf %1000s o"), limits: { output: "1000" } } },
    });
    expect(await project.run("w")).toMatchObject({
      status: "succeeded",
      truncated: false,
      stdout: `${" ".repeat(999)}o`,
    });
  });

  it("stops a flood of gigabytes at once, and does not hold it in memory", async () => {
    const worker = {
      command: sh("trap '' TERM; yes 0123456789abcdef & yes fedcba9876543210 >&2 & wait"),
      limits: { output: "64k" },
    };
    await using project = await openProject({ workers: { w: worker } });
    const before = process.memoryUsage().rss;
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "output_limit", truncated: true });
    expect(result.stdout.length + result.stderr.length).toBe(65536);
    expect(process.memoryUsage().rss - before).toBeLessThan(200e6);
    expect(await project.traces()).toEqual([]);
  });

  it("counts pieces of one byte as any others, however many come at once", async () => {
    const command = python("import os\nfor _ in range(200000): os.write(1, b'o'); os.write(2, b'e')");
    await using project = await openProject({ workers: { w: { image: "corral/python", command } } });
    const running = project.run("w");
    await project.printed("w", "o");
    // While this process looks away, frames pile up and are then read together.
    const until = Date.now() + 1500;
    while (Date.now() < until);
    const result = await running;
    expect(result).toMatchObject({ status: "succeeded", truncated: false });
    expect([result.stdout, result.stderr]).toEqual(["o".repeat(200_000), "e".repeat(200_000)]);
  });
});

describe("BoundedOutput", () => {
  it("costs no more than twice what it keeps, also where it comes byte by byte", () => {
    const output = new BoundedOutput(
      1 << 20,
      () => {},
      () => {},
    );
    const backing = Buffer.alloc(1 << 20, "x");
    const before = process.memoryUsage();
    for (let index = 0; index < 1 << 20; index += 1) output.add("stdout", backing.subarray(index, index + 1));
    const after = process.memoryUsage();
    expect(output.text("stdout")).toBe(backing.toString());
    expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(40e6);
  });

  it("tells once that there was too much, and drops the rest of both streams", () => {
    let overflows = 0;
    const kept: string[] = [];
    const output = new BoundedOutput(
      5,
      (stream, chunk) => void kept.push(`${stream} ${chunk}`),
      () => {
        overflows += 1;
      },
    );
    output.add("stdout", Buffer.from("abc"));
    output.add("stderr", Buffer.from("defgh"));
    output.add("stdout", Buffer.from("ij"));
    expect([output.text("stdout"), output.text("stderr"), output.truncated, overflows]).toEqual(["abc", "de", true, 1]);
    expect(kept).toEqual(["stdout abc", "stderr de"]);
  });

  it("gives text for bytes that are none, and joins a character that came in two pieces", () => {
    const output = new BoundedOutput(
      100,
      () => {},
      () => {},
    );
    for (const byte of Buffer.from("ü\xff", "utf8")) output.add("stdout", Buffer.from([byte]));
    output.add("stderr", Buffer.from([0xff]));
    expect([output.text("stdout"), output.text("stderr")]).toEqual(["üÿ", "\ufffd"]);
  });
});
