import fs from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { contentOf, copyContent } from "../../src/files/host/content.ts";
import { Descriptor } from "../../src/files/host/descriptor.ts";
import { temporaryFolder } from "./temporary-folder.ts";

it("copies a file that takes no room without taking any, holes at its end included", async () => {
  const folder = temporaryFolder();
  onTestFinished(() => folder.remove());
  const [from, to] = [join(folder.path, "from"), join(folder.path, "to")];
  using source = new Descriptor(fs.openSync(from, "w+"));
  fs.writeSync(source.fd, "end", 600 * 1024 ** 2);
  fs.ftruncateSync(source.fd, 1024 ** 3);
  using target = new Descriptor(fs.openSync(to, "w+"));
  expect(await copyContent(contentOf(source), target)).toBe(1024 ** 3);
  const { size, blocks } = fs.statSync(to);
  expect(size).toBe(1024 ** 3);
  expect(blocks * 512).toBeLessThan(2 * 1024 ** 2);
  const tail = Buffer.alloc(3);
  fs.readSync(target.fd, tail, 0, 3, 600 * 1024 ** 2);
  expect(tail.toString()).toBe("end");
});
