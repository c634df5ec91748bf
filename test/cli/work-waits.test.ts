import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { openAwayEngine } from "../faults/away-engine.ts";
import { serverPrograms, startServer } from "../fleet/postgres/server-fixture.ts";
import { PROGRAM } from "./program.ts";

const base = mkdtempSync(join(tmpdir(), "corral-waits-"));
mkdirSync(join(base, "workers"));
writeFileSync(join(base, "corral.yaml"), "version: 1\n");
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill("SIGKILL");
  rmSync(base, { recursive: true, force: true });
});

function work(env: Readonly<Record<string, string | undefined>>, queue: string, ...more: readonly string[]) {
  const child = spawn(process.execPath, [PROGRAM, "work", "--concurrency", "1", "-C", base, ...more], {
    env: { ...env, CORRAL_STATE_DIR: join(base, "state"), CORRAL_QUEUE: queue, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.push(child);
  let [out, err] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => {
    out += chunk;
  });
  child.stderr.on("data", (chunk: Buffer) => {
    err += chunk;
  });
  const events = (): Record<string, unknown>[] =>
    out.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Record<string, unknown>]));
  const types = (): unknown[] =>
    events().map((event) => (event.type === "waiting" ? `waiting ${event.for}` : event.type));
  return { child, types, err: () => err, ended: once(child, "close").then(([code]) => code as number | null) };
}

const soon = { timeout: 60_000, interval: 50 };

describe.skipIf(serverPrograms() === null)("corral work that is started", () => {
  it("while its Engine and the queue are away waits for both, and says so", { timeout: 180_000 }, async () => {
    await using engine = await openAwayEngine({ isAway: true });
    await using server = await startServer();
    await server.kill();
    const machine = work(engine.env, server.url, "--json");
    await expect.poll(machine.types, soon).toEqual(["waiting engine"]);
    await engine.comeBack();
    await expect.poll(machine.types, soon).toContain("waiting queue");
    await server.start();
    await expect.poll(machine.types, soon).toContain("joined");
    machine.child.kill("SIGTERM");
    expect([await machine.ended, machine.err()]).toEqual([0, expect.stringContaining("delivered 0 items")]);
  });

  it("ends while it waits, by one SIGTERM, with 0", async () => {
    await using engine = await openAwayEngine({ isAway: true });
    const machine = work(engine.env, "postgres://u@localhost/none?host=/nowhere");
    await expect.poll(machine.err, soon).toContain("corral: waits for the container engine");
    machine.child.kill("SIGTERM");
    expect(await machine.ended).toBe(0);
  });

  it.each([
    ["the queue refuses", (url: string) => url.replace("/postgres?", "/missing?"), "refuses the connection"],
    ["a file of the address is missing", (url: string) => `${url}&passwordfile=/nowhere/password`, "cannot be read"],
  ])("ends at once with 125 if %s", async (_, address, message) => {
    await using server = await startServer();
    const machine = work(process.env, address(server.url));
    expect([await machine.ended, machine.err()]).toEqual([125, expect.stringContaining(message)]);
  });

  it("ends at once with 125 if the address of its Engine is wrong", async () => {
    const machine = work({ ...process.env, DOCKER_HOST: "nothing://x" }, "postgres://u@localhost/none?host=/nowhere");
    expect([await machine.ended, machine.err()]).toEqual([125, expect.not.stringContaining("waits")]);
  });
});
