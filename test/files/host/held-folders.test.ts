import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Descriptor } from "../../../src/files/host/descriptor.ts";
import { HeldFolders } from "../../../src/files/host/folder.ts";
import { temporaryFolder } from "../temporary-folder.ts";

let folder: ReturnType<typeof temporaryFolder>;
let held: HeldFolders;
let inbox: string;
beforeEach(() => {
  folder = temporaryFolder();
  held = new HeldFolders();
  inbox = join(folder.path, "inbox");
  fs.mkdirSync(inbox);
  fs.writeFileSync(join(inbox, "a"), "inside");
  fs.mkdirSync(join(folder.path, "elsewhere"));
  fs.writeFileSync(join(folder.path, "elsewhere", "a"), "elsewhere");
});
afterEach(() => {
  held[Symbol.dispose]();
  folder.remove();
});

function read(path: string): string | null {
  using found = held.pinned(path);
  return found === null ? null : fs.readFileSync(found.path(), "utf8");
}

const descriptors = (): number => fs.readdirSync("/proc/self/fd").length;

describe("a folder that is held open between two uses", () => {
  it("is used only while its path leads to it: what takes its place is found", () => {
    expect(read(join(inbox, "a"))).toBe("inside");
    fs.renameSync(inbox, `${inbox}.old`);
    expect(read(join(inbox, "a"))).toBeNull();
    fs.mkdirSync(inbox);
    fs.writeFileSync(join(inbox, "a"), "new");
    expect(read(join(inbox, "a"))).toBe("new");
  });

  it("is not replaced by a link, neither in its own place nor in that of a folder around it", () => {
    expect(read(join(inbox, "a"))).toBe("inside");
    fs.rmSync(inbox, { recursive: true });
    fs.symlinkSync(join(folder.path, "elsewhere"), inbox);
    expect(read(join(inbox, "a"))).toBeNull();

    const deep = join(folder.path, "outer", "in");
    fs.mkdirSync(deep, { recursive: true });
    fs.writeFileSync(join(deep, "a"), "deep");
    expect(read(join(deep, "a"))).toBe("deep");
    fs.renameSync(join(folder.path, "outer"), join(folder.path, "moved"));
    fs.mkdirSync(join(folder.path, "other", "in"), { recursive: true });
    fs.writeFileSync(join(folder.path, "other", "in", "a"), "other");
    fs.symlinkSync(join(folder.path, "other"), join(folder.path, "outer"));
    expect(read(join(deep, "a"))).toBeNull();
  });

  it("gives no link, FIFO or missing file", () => {
    fs.symlinkSync(join(inbox, "a"), join(inbox, "link"));
    expect([read(join(inbox, "link")), read(join(inbox, "none")), read(join(inbox, "..", "elsewhere", "a"))]).toEqual([
      null,
      null,
      "elsewhere",
    ]);
    expect(held.folder(join(inbox, "a"))).toBeNull();
  });

  it("is one of at most 32, and all are closed in the end", () => {
    const before = descriptors();
    let last: Descriptor | null = null;
    for (let index = 0; index < 100; index += 1) {
      fs.mkdirSync(join(inbox, String(index)));
      last = held.folder(join(inbox, String(index)));
      expect(last).not.toBeNull();
    }
    expect(descriptors() - before).toBe(32);
    expect(held.folder(join(inbox, "99"))).toBe(last);
    held[Symbol.dispose]();
    expect(descriptors()).toBe(before);
  });
});
