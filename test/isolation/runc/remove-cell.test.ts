import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { cellPaths, runcPaths } from "../../../src/isolation/runc/model/layout.ts";
import { removeCell } from "../../../src/isolation/runc/remains/remove-cell.ts";

const ID = "corral-test-of-what-stays";
let stateDir = "";
beforeEach(async () => {
  stateDir = await mkdtemp(join(tmpdir(), "corral-remains-"));
});
afterEach(() => rm(stateDir, { recursive: true, force: true }));

describe("what a cell of runc leaves", () => {
  it.each<[string, readonly string[]]>([
    ["nothing", []],
    ["its labels and runc's notes", ["cell/labels.json", "state/state.json"]],
    ["no labels any more", ["state/state.json", "cell/"]],
    [
      "what was written over the image, with a file of the name of the labels",
      ["cell/labels.json", "cell/over/upper/etc/labels.json"],
    ],
    ["only what was written over the image", ["cell/over/upper/a"]],
    [
      "more than runc keeps today",
      ["cell/labels.json", "cell/notes", "state/state.json", "state/exec.fifo", "state/more/a"],
    ],
    ["one file of another name", ["cell/notes", "state/exec.fifo"]],
  ])("is removed whatever it is: %s", async (_, files) => {
    const paths = runcPaths(stateDir);
    const dir = join(paths.cells, "0123456789ab");
    expect(cellPaths(dir).labels).toBe(join(dir, "labels.json"));
    for (const file of files) {
      const path = file.replace(/^cell/, dir).replace(/^state/, join(paths.state, ID));
      await mkdir(file.endsWith("/") ? path : dirname(path), { recursive: true });
      if (!file.endsWith("/")) await writeFile(path, "x");
    }
    await removeCell(paths, ID, dir, true);
    expect([dir, join(paths.state, ID)].filter((path) => existsSync(path))).toEqual([]);
  });
});
