import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { boundedWrites } from "../../src/files/guarded.ts";
import { openHostFiles } from "../../src/files/host/host-files.ts";
import { type Files, mountedPlace } from "../../src/files/model/files.ts";
import { at, mount } from "../sandbox/sandboxes.ts";
import { temporaryFolder } from "./temporary-folder.ts";

let folder: ReturnType<typeof temporaryFolder>;
let host: Files;

beforeEach(() => {
  folder = temporaryFolder();
  mkdirSync(join(folder.path, "three"));
  for (const name of ["1", "2", "3"]) writeFileSync(join(folder.path, "three", name), "12345");
  writeFileSync(join(folder.path, "large"), "x".repeat(20));
  host = openHostFiles([{ path: at("/data"), host: folder.path }]);
});
afterEach(() => {
  host[Symbol.dispose]();
  folder.remove();
});

const place = (path: string) => {
  const found = mountedPlace([mount("/data", "rw")], at(`/data/${path}`));
  if (found === null) throw new RangeError(path);
  return found;
};

const TOO_LARGE = { code: "FILE_TOO_LARGE" };

it("nothing becomes larger than the bound by one operation, and what may be as large as that is", async () => {
  const files = boundedWrites(host, 10);
  await files.write(place("a"), "1234567890");
  await expect(files.write(place("a"), "12345678901")).rejects.toMatchObject(TOO_LARGE);
  await expect(files.append(place("a"), "1")).rejects.toMatchObject(TOO_LARGE);
  await expect(files.edit(place("a"), [{ old: "1", new: "one" }])).rejects.toMatchObject(TOO_LARGE);
  expect(readFileSync(join(folder.path, "a"), "utf8")).toBe("1234567890");
  await files.write(place("b"), "12345");
  await files.append(place("b"), "67890");
  expect(readFileSync(join(folder.path, "b"), "utf8")).toBe("1234567890");
});

it("a copy is bounded by all that it copies together; a move takes no room", async () => {
  await expect(boundedWrites(host, 10).copy(place("three"), place("four"))).rejects.toMatchObject(TOO_LARGE);
  await expect(boundedWrites(host, 10).copy(place("large"), place("other"))).rejects.toMatchObject(TOO_LARGE);
  expect(await boundedWrites(host, 15).copy(place("three"), place("five"))).toMatchObject({ files: 3 });
  expect(await boundedWrites(host, 10).move(place("large"), place("moved"))).toMatchObject({ files: 1 });
});

it("what else is checked is still checked", async () => {
  const refuse = () => {
    throw new Error("refused");
  };
  await expect(boundedWrites(host, 10).write(place("c"), "1", { checks: { write: refuse } })).rejects.toThrow(
    "refused",
  );
});
