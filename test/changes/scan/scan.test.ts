import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { scanView, TooManyChanges } from "../../../src/changes/scan/scan.ts";
import type { View } from "../../../src/changes/view/view.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { plant } from "../staged-folder.ts";
import { DATA, viewPlaces } from "../view/opened-view.ts";
import { ALL_NAMES, byteTree, carryOut, differences, operations } from "./byte-tree.ts";

/** In the words of {@link differences}. */
async function found(view: View): Promise<string[]> {
  const drafts = await scanView(view);
  return drafts.map(({ kind, type, names }) => `${kind} ${type} ${names.join("/")}`).sort();
}

describe.each([true, false])("what a scan finds (overlay: %s)", (overlays) => {
  it("is what another look at both trees finds, whatever was done", { timeout: 240_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(operations(ALL_NAMES), operations(ALL_NAMES), async (before, during) => {
        await using places = viewPlaces();
        carryOut(places.target, before);
        const was = byteTree(places.target);
        const view = await places.view(overlays);
        expect(view.kind).toBe(overlays ? "overlay" : "copy");
        expect(byteTree(view.host)).toEqual(was);
        carryOut(view.host, during);
        expect(await found(view)).toEqual(differences(was, byteTree(view.host)));
        expect(byteTree(places.target)).toEqual(was);
      }),
      { numRuns: AT_LENGTH ? 200 : 70 },
    );
  });

  it("is nothing where files were only read, touched, and written with what they held", async () => {
    await using places = viewPlaces();
    plant(places.target, { "a/b/c": "text", run: { text: "#!/bin/sh", mode: 0o755 }, l: { link: "run" }, empty: null });
    fs.chmodSync(join(places.target, "run"), 0o4755);
    const view = await places.view(overlays);
    const script = `cat a/b/c; touch a a/b/c run; cp a/b/c x; mv x a/b/c; chmod 600 a/b/c; chmod 644 a/b/c
      rm l; ln -s run l; touch n; rm n; mkdir m; rmdir m; mv empty e; mv e empty || { rmdir e; mkdir empty; }`;
    execFileSync("sh", ["-c", script], { cwd: view.host });
    expect(await found(view)).toEqual([]);
  });

  it("is a refused folder in place of one that is too deep, and all else as it is", async () => {
    await using places = viewPlaces();
    const view = await places.view(overlays);
    plant(view.host, { kept: "x", [`${"d/".repeat(140)}far`]: "x" });
    const drafts = await scanView(view);
    expect(drafts.filter(({ refusal }) => refusal !== undefined)).toMatchObject([
      { kind: "create", type: "directory", refusal: "it is deeper than 128 levels" },
    ]);
    expect(drafts).toHaveLength(1 + 129);
    expect(drafts.at(-1)?.names ?? drafts).not.toContain("far");
    expect(drafts.some(({ names }) => names.join("/") === "kept")).toBe(true);
  });

  it("is not what others did meanwhile in the directory itself", async () => {
    await using places = viewPlaces();
    plant(places.target, { gone: "x", "sub/gone": "x", kept: "x" });
    const view = await places.view(overlays);
    fs.rmSync(join(places.target, "gone"));
    fs.rmSync(join(places.target, "sub"), { recursive: true });
    plant(places.target, { theirs: "x", "new/theirs": "x" });
    plant(view.host, { ours: "x" });
    expect(await found(view)).toEqual(["create file ours"]);
  });

  it("is a deletion once, where others deleted the same", async () => {
    await using places = viewPlaces();
    plant(places.target, { "d/a": "x", "d/b": "x" });
    const view = await places.view(overlays);
    fs.rmSync(join(view.host, "d"), { recursive: true });
    fs.rmSync(join(places.target, "d/a"));
    expect(await found(view)).toEqual(["delete directory d", "delete file d/b"]);
  });

  it("is nothing in or above what is mounted apart", async () => {
    await using places = viewPlaces();
    plant(places.target, { "a/own/x": "x", "a/b": "x", c: "x" });
    const own = places.mount({ path: `${DATA}/a/own` as VirtualPath, host: join(places.target, "a/own"), mode: "ro" });
    const view = await places.view(overlays, {}, [own]);
    fs.rmSync(join(view.host, "a"), { recursive: true });
    expect(await found(view)).toEqual(["delete file a/b"]);
    plant(view.host, { a: { link: "c" } });
    expect(await found(view)).toEqual(["create link a", "delete file a/b"]);
  });

  it("is what was written where something stands that is not shown", async () => {
    await using places = viewPlaces();
    plant(places.target, { mounted: null, c: "x" });
    execFileSync("mkfifo", [join(places.target, "fifo")]);
    execFileSync("mount", ["--bind", places.path, join(places.target, "mounted")]);
    try {
      const view = await places.view(overlays);
      expect(fs.readdirSync(view.host).sort()).toEqual(overlays ? ["c", "fifo", "mounted"] : ["c"]);
      fs.rmSync(join(view.host, "fifo"), { force: true });
      plant(view.host, { fifo: "x", "mounted/x": "x" });
      const drafts = await scanView(view);
      expect(drafts.map(({ kind, names, overHidden }) => [kind, names.join("/"), overHidden]).sort()).toEqual([
        ["create", "fifo", true],
        ["create", "mounted/x", true],
      ]);
    } finally {
      execFileSync("umount", [join(places.target, "mounted")]);
    }
  });

  it("is too much where there are too many changes", { timeout: 120_000 }, async () => {
    await using places = viewPlaces();
    const view = await places.view(overlays);
    // That of every run is met in cells: test/attacks/staged-changes.test.ts.
    const most = 500;
    execFileSync("sh", ["-c", `seq ${most + 1} | xargs -n 5000 touch`], { cwd: view.host });
    const scanned = await scanView(view, { maxChanges: most }).catch((error: unknown) => error);
    expect(scanned).toBeInstanceOf(TooManyChanges);
    expect(String(scanned)).toContain(`more than ${most} changes`);
  });
});
