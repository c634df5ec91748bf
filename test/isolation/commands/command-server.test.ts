import { closeSync, constants, openSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, it } from "vitest";
import { CommandServer } from "../../../src/isolation/commands/command-server.ts";

it("asks no more about a command that has ended, also if its output ends after it", async () => {
  const dir = await mkdtemp(join(tmpdir(), "corral-server-"));
  const requests: string[] = [];
  const never = new Promise<never>(() => {});
  await using server = new CommandServer({ dir, write: (text) => void requests.push(text), exit: never });
  const request = { argv: ["true"], cwd: "/", env: {}, stdin: new Uint8Array(), onOutput: () => undefined };
  const starting = server.exec(request);
  await expect.poll(() => requests.length).toBe(1);
  const [, name = ""] = /^corral_run (\S+)/m.exec(requests[0] ?? "") ?? [];
  // As the command has them, and what it left behind.
  const { O_WRONLY, O_NONBLOCK } = constants;
  const ends = ["out", "err"].map((kind) => openSync(join(dir, `${name}.${kind}`), O_WRONLY | O_NONBLOCK));
  server.add(Buffer.from(`begun ${name} 7 0 100\nstarted ${name} 1\n`));
  const { exit } = await starting;
  server.add(Buffer.from(`ended ${name} 0 0\n`));
  for (const end of ends) closeSync(end);
  expect(await exit).toMatchObject({ kind: "exited", code: 0 });
  await pause(50);
  const asked = requests.length;
  await pause(400);
  expect(requests.slice(asked)).toEqual([]);
  await rm(dir, { recursive: true });
});
