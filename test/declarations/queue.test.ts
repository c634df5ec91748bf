import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { queueOf } from "../../src/declarations/queue.ts";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-queue-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true });
});

const declared = (text: string): Promise<void> => writeFile(join(dir, "corral.yaml"), `version: 1\n${text}`);

describe("the queue of a project", () => {
  it("is the journal if nothing names another, and that of the environment before that of corral.yaml", async () => {
    expect(await queueOf(dir, {})).toBeNull();
    await declared("# no queue here\n");
    expect(await queueOf(dir, {})).toBeNull();
    await declared("queue: postgres://corral@db/fleets?sslmode=verify-full\n");
    expect(await queueOf(dir, {})).toBe("postgres://corral@db/fleets?sslmode=verify-full");
    expect(await queueOf(dir, { CORRAL_QUEUE: "postgres://other/x" })).toBe("postgres://other/x");
    expect(await queueOf(dir, { CORRAL_QUEUE: "" })).toBe("postgres://corral@db/fleets?sslmode=verify-full");
  });

  it("is found however the file is written", async () => {
    await writeFile(join(dir, "corral.yaml"), '{version: 1, "queue": "postgres://db/fleets"}');
    expect(await queueOf(dir, {})).toBe("postgres://db/fleets");
  });

  it.each([
    ["queue: mysql://db/fleets", /postgres:/],
    ["queue: postgres://corral:secret@db/fleets", /without a password/],
    ["queue: postgres://db/fleets\nnonsense: 1", /nonsense/],
  ])("is an error, and not the journal, if corral.yaml is wrong: %s", async (text, message) => {
    await declared(text);
    const failure = await queueOf(dir, {}).catch((error: unknown) => error);
    expect(String(failure)).toMatch(message);
    expect(String(failure)).not.toContain("secret@");
  });
});
