import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bareRemote, type Remote } from "./remote.ts";
import { refusal, type WorkerSide, type WorkerSideOptions, workerSide } from "./worker-side.ts";

let remote: Remote;
let worker: WorkerSide | null = null;

beforeEach(() => {
  remote = bareRemote({ "a.md": "one\n", "docs/b.md": "b\n", "docs/deep/c.bin": "\0\u0001" });
});
afterEach(async () => {
  await worker?.[Symbol.asyncDispose]();
  worker = null;
  remote.remove();
});

async function open(options: WorkerSideOptions = {}): Promise<WorkerSide> {
  worker = await workerSide(remote, options);
  return worker;
}

describe("pulling", () => {
  it("writes the repository's files below its directory, byte for byte, and leaves what is there already", async () => {
    const w = await open();
    expect(await w.pull()).toMatchObject({
      commit: remote.git("rev-parse", "main"),
      created: ["/notes/a.md", "/notes/docs/b.md", "/notes/docs/deep/c.bin"],
      replaced: [],
      unchanged: 0,
      conflicts: [],
      skipped: [],
    });
    expect([w.read("a.md"), w.read("docs/deep/c.bin")]).toEqual(["one\n", "\0\u0001"]);
    expect(await w.pull()).toMatchObject({ created: [], replaced: [], unchanged: 3 });
    expect(fs.readdirSync(w.dir).toSorted()).toEqual(["a.md", "docs"]);
  });

  it("at the same time as another is no conflict with what that one writes", async () => {
    for (let round = 0; round < 10; round += 1) {
      const w = await open();
      const pulls = await Promise.all([w.pull(), w.pull(), w.pull()]);
      expect(pulls.map(({ conflicts, skipped }) => [conflicts, skipped])).toEqual(Array(3).fill([[], []]));
      await w[Symbol.asyncDispose]();
    }
    worker = null;
  });

  it("takes files and directories by name, from the root of the repository or by their whole path", async () => {
    const w = await open();
    expect((await w.pull({ paths: ["docs/deep/", "/notes/a.md"] })).created).toEqual([
      "/notes/a.md",
      "/notes/docs/deep/c.bin",
    ]);
    expect((await w.pull({ paths: ["/notes"] })).created).toEqual(["/notes/docs/b.md"]);
    expect(await refusal(w.pull({ paths: ["a.md", "no.md", "doc"] }))).toBe(
      "NOT_FOUND: The repository notes has nothing at: /notes/no.md, /notes/doc.",
    );
    for (const path of ["/other/a.md", "../a.md", "docs/../../x", "/notes/../other"])
      expect(await refusal(w.pull({ paths: [path] }))).toMatch(/^GIT_PATH: /);
  });

  it("replaces what an earlier version of the repository left, also in another run", async () => {
    const w = await open();
    await w.pull();
    remote.commit({ "a.md": "two\n" });
    remote.commit({ "a.md": "three\n" });
    w.write("docs/b.md", "b\n");
    const later = await open({ stateDir: w.stateDir });
    later.write("a.md", "one\n");
    later.write("docs/b.md", "b\n");
    expect(await later.pull()).toMatchObject({
      created: ["/notes/docs/deep/c.bin"],
      replaced: ["/notes/a.md"],
      unchanged: 1,
    });
    expect(later.read("a.md")).toBe("three\n");
    await later[Symbol.asyncDispose]();
    worker = w;
  });

  it("leaves a file with changes of its own, and says so, unless told to overwrite", async () => {
    const w = await open();
    await w.pull();
    w.write("a.md", "mine\n");
    fs.rmSync(join(w.dir, "docs/b.md"));
    fs.mkdirSync(join(w.dir, "docs/b.md"));
    remote.commit({ "a.md": "two\n" });
    const pulled = await w.pull();
    expect(pulled).toMatchObject({ conflicts: ["/notes/a.md"], replaced: [], unchanged: 1 });
    expect(pulled.skipped).toEqual([{ path: "/notes/docs/b.md", why: expect.stringContaining("is a directory") }]);
    expect(w.read("a.md")).toBe("mine\n");
    expect((await w.pull({ overwrite: true })).replaced).toEqual(["/notes/a.md"]);
    expect(w.read("a.md")).toBe("two\n");
  });

  it("asks once for all that is to be written where writing asks, and writes nothing where nobody agrees", async () => {
    const mount = { approval: { write: "ask", delete: "ask" } } as const;
    const denied = new Error("no");
    const w = await open({ mount, agree: () => Promise.reject(denied) });
    await expect(w.pull()).rejects.toBe(denied);
    expect(w.asked).toEqual([["/notes/a.md", "/notes/docs/b.md", "/notes/docs/deep/c.bin"]]);
    expect(fs.readdirSync(w.dir)).toEqual([]);
  });

  it("leaves a file that was changed while somebody was asked, and does not pass it as agreed to", async () => {
    const mount = { approval: { write: "ask", delete: "ask" } } as const;
    const w: WorkerSide = await open({ mount, agree: async () => w.write("a.md", "in the meantime\n") });
    expect(await w.pull({ paths: ["a.md", "docs/b.md"] })).toMatchObject({
      created: ["/notes/docs/b.md"],
      conflicts: ["/notes/a.md"],
    });
    expect(w.read("a.md")).toBe("in the meantime\n");
    expect(w.agreedTo).toEqual(["/notes/docs/b.md"]);
  });

  it("refuses a file that was changed and changed back while the question was open", async () => {
    const mount = { approval: { write: "ask", delete: "ask" } } as const;
    const agree = async (): Promise<void> => {
      w.write("a.md", "other\n");
      w.write("a.md", "mine\n");
    };
    const w: WorkerSide = await open({ mount, agree });
    w.write("a.md", "mine\n");
    const pulled = w.pull({ paths: ["a.md"], overwrite: true });
    expect(await refusal(pulled)).toMatch(/changed after it was shown/);
    expect([w.read("a.md"), w.agreedTo]).toEqual(["mine\n", []]);
  });

  it("asks about nothing that cannot be written", async () => {
    const approval = { write: "ask", delete: "ask" } as const;
    const w = await open({ mount: { approval, suffixes: [".md"], maxFileBytes: 3 } });
    expect((await w.pull()).skipped.map(({ path }) => path)).toEqual(["/notes/docs/deep/c.bin", "/notes/a.md"]);
    expect(await refusal(w.pull({ paths: ["a.md"] }))).toMatch(/^FILE_TOO_LARGE: /);
    expect(w.asked).toEqual([["/notes/docs/b.md"]]);
  });

  it("keeps to suffixes, sizes and modes of the directory: what may not be written is left out, with the reason", async () => {
    const w = await open({ mount: { suffixes: [".md"], maxFileBytes: 3 } });
    const { created, skipped } = await w.pull();
    expect(created).toEqual(["/notes/docs/b.md"]);
    expect(skipped.map(({ path }) => path)).toEqual(["/notes/docs/deep/c.bin", "/notes/a.md"]);
    expect(JSON.stringify(skipped)).not.toContain(w.dir);
  });

  it("is refused where nothing at all may be written", async () => {
    const readOnly = await open({ mode: "ro" });
    expect(await refusal(readOnly.pull())).toMatch(/^PATH_NOT_WRITABLE: /);
    await readOnly[Symbol.asyncDispose]();
    const blocked = await open({ mount: { approval: { write: "blocked", delete: "blocked" } } });
    expect(await refusal(blocked.pull())).toMatch(/^PERMISSION: .*blocked/);
  });

  it("tells of a branch that does not exist yet", async () => {
    const w = await open({ repo: { branch: "drafts" } });
    expect(await w.pull()).toMatchObject({ commit: null, created: [] });
  });

  it("tells where the repository is not to be reached, without saying where that is", async () => {
    const w = await open();
    fs.rmSync(remote.path, { recursive: true });
    const told = await refusal(w.pull());
    expect(told).toMatch(/^GIT_FAILED: The repository notes could not be reached/);
    for (const secret of [remote.path, w.stateDir]) expect(told).not.toContain(secret);
  });
});
