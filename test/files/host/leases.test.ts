import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CannotStage } from "../../../src/changes/view/base-tree.ts";
import { openView } from "../../../src/changes/view/view.ts";
import { HeldFolders } from "../../../src/files/host/folder.ts";
import { openHostFiles } from "../../../src/files/host/host-files.ts";
import { type Files, mountedPlace, type Place } from "../../../src/files/model/files.ts";
import { bringBack } from "../../../src/fleet/scrubbed/cell-folder.ts";
import { FileBytes } from "../../../src/git/stage.ts";
import { pinSources } from "../../../src/isolation/sources/pin.ts";
import { refusedSourcesFor } from "../../../src/isolation/sources/refused-sources.ts";
import { at, mount, project } from "../../sandbox/sandboxes.ts";
import { temporaryFolder } from "../temporary-folder.ts";
import { leaseHolder } from "./lease-holder.ts";

let folder: ReturnType<typeof temporaryFolder>;
let files: Files;
let holder: AsyncDisposable;
beforeEach(async () => {
  folder = temporaryFolder();
  fs.mkdirSync(join(folder.path, "tree"));
  for (const name of ["a", "single", "tree/leased"]) fs.writeFileSync(join(folder.path, name), "one\n");
  fs.linkSync(join(folder.path, "a"), join(folder.path, "b"));
  files = openHostFiles([
    { path: at("/data"), host: folder.path },
    { path: at("/single"), host: join(folder.path, "single") },
  ]);
  holder = await leaseHolder(...["a", "single", "tree/leased"].map((name) => join(folder.path, name)));
});
afterEach(async () => {
  await holder[Symbol.asyncDispose]();
  files[Symbol.dispose]();
  folder.remove();
});

function place(path: string): Place {
  const found = mountedPlace([mount("/data", "rw"), mount("/single", "rw")], at(path));
  if (found === null) throw new Error(path);
  return found;
}

/** The kernel lets an ordinary `open` wait for 45 s. */
const QUICK_MS = 10_000;

describe("a file on which another program holds a lease", () => {
  it.each<readonly [string, () => Promise<unknown>]>([
    ["read", () => files.read(place("/data/a"))],
    ["append to", () => files.append(place("/data/a"), "x")],
    ["append to a mount that is a file", () => files.append(place("/single"), "x")],
    ["write a mount that is a file", () => files.write(place("/single"), "x")],
    ["edit", () => files.edit(place("/data/a"), [{ old: "one", new: "two" }])],
    ["copy", () => files.copy(place("/data/a"), place("/data/c"))],
    ["copy in a folder", () => files.copy(place("/data/tree"), place("/data/other"))],
  ])("is refused at once: %s", async (_, operation) => {
    const begun = performance.now();
    await expect(operation()).rejects.toMatchObject({
      code: "FILE_LEASED",
      message: expect.stringMatching(/another program holds .*lease/),
    });
    expect(performance.now() - begun).toBeLessThan(QUICK_MS);
    expect(fs.readdirSync(folder.path).sort()).toEqual(["a", "b", "single", "tree"]);
  });

  it("can be replaced, moved and deleted, which opens it not at all", async () => {
    const begun = performance.now();
    await files.write(place("/data/a"), "new");
    await files.move(place("/data/tree/leased"), place("/data/moved"));
    await files.delete(place("/data/moved"));
    expect(performance.now() - begun).toBeLessThan(QUICK_MS);
    expect(fs.readFileSync(join(folder.path, "a"), "utf8")).toBe("new");
  });

  it("is refused for a commit, as a mount and in a copied view", async () => {
    const begun = performance.now();
    const host = folder.path;
    using bytes = new FileBytes(project([{ ...mount("/data", "rw"), host }]));
    const { signal } = new AbortController();
    await expect(bytes.read(at("/data/a"), 100, signal)).rejects.toMatchObject({ code: "FILE_LEASED" });

    const pinning = await pinSources([join(host, "a")], refusedSourcesFor("/nowhere", null));
    expect(pinning).toMatchObject({ ok: false, refusals: [{ reason: expect.stringContaining("lease") }] });

    const own = { ...mount("/tree", "rw"), host: join(host, "tree") };
    fs.mkdirSync(join(host, "view"));
    const view = openView({ mount: own, mounts: [own], dir: join(host, "view"), overlays: false });
    await expect(view).rejects.toThrow(CannotStage);
    expect(performance.now() - begun).toBeLessThan(QUICK_MS);
  });

  it("is not brought back to another file system", async () => {
    const other = fs.mkdtempSync("/dev/shm/corral-");
    try {
      const output = {
        base: { ...mount("/out", "rw"), host: other },
        index: 0,
        parts: ["item"],
        path: at("/out/item"),
      };
      const begun = performance.now();
      using held = new HeldFolders();
      await expect(bringBack(join(folder.path, "tree"), output, 1000, held)).rejects.toMatchObject({ code: "EAGAIN" });
      expect(performance.now() - begun).toBeLessThan(QUICK_MS);
    } finally {
      fs.rmSync(other, { recursive: true });
    }
  });
});
