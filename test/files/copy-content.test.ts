import fs from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { contentOf, copyContent } from "../../src/files/host/content.ts";
import { Descriptor } from "../../src/files/host/descriptor.ts";
import { temporaryFolder } from "./temporary-folder.ts";

const MIB = 1024 ** 2;

it("copies a file that takes no room without taking any, holes at its end included", async () => {
  const folder = temporaryFolder();
  onTestFinished(() => folder.remove());
  const [from, to] = [join(folder.path, "from"), join(folder.path, "to")];
  using source = new Descriptor(fs.openSync(from, "w+"));
  fs.writeSync(source.fd, "end", 100 * MIB);
  fs.ftruncateSync(source.fd, 200 * MIB);
  using target = new Descriptor(fs.openSync(to, "w+"));
  expect(await copyContent(contentOf(source), target)).toBe(200 * MIB);
  const { size, blocks } = fs.statSync(to);
  expect(size).toBe(200 * MIB);
  expect(blocks * 512).toBeLessThan(2 * MIB);
  const tail = Buffer.alloc(3);
  fs.readSync(target.fd, tail, 0, 3, 100 * MIB);
  expect(tail.toString()).toBe("end");
});
