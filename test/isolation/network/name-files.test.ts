import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { NameFileSet } from "../../../src/isolation/network/name-files.ts";

let dir: string;
let made: NameFileSet;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "corral-names-"));
  made = new NameFileSet(join(dir, "names"));
});

afterEach(() => {
  rmSync(dir, { recursive: true });
});

it("are the same files for every cell, also of another process", async () => {
  const files = await made.files();
  expect(readFileSync(files.hosts, "utf8")).toMatch(/^127\.0\.0\.1\tlocalhost corral\n/);
  expect(readFileSync(files.resolver, "utf8")).toBe("nameserver 127.0.0.1\n");
  const { ino } = statSync(files.hosts);
  expect(await new NameFileSet(join(dir, "names")).files()).toEqual(files);
  expect(await made.files()).toEqual(files);
  expect(statSync(files.hosts).ino).toBe(ino);
});

it("are made again where they were cleaned up, replaced or changed meanwhile", async () => {
  const { hosts, resolver } = await made.files();
  const whole = readFileSync(hosts, "utf8");
  for (const harm of [
    () => rmSync(join(dir, "names"), { recursive: true }),
    () => rmSync(resolver),
    () => writeFileSync(hosts, whole.replace("127.0.0.1", "192.0.2.1")),
    () => writeFileSync(hosts, "x"),
  ]) {
    harm();
    await made.files();
    expect(readFileSync(hosts, "utf8")).toBe(whole);
    expect(existsSync(resolver)).toBe(true);
  }
});
