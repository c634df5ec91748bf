import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { CommitFiles } from "../../src/git/stage.ts";
import { bareRemote, type Remote } from "./remote.ts";
import { never } from "./worker-side.ts";

let remote: Remote;

beforeEach(() => {
  remote = bareRemote({ "ci.yaml": "version: 1\n", "app/package-lock.json": "{}\n" });
});
afterEach(() => {
  remote.remove();
});

const reason = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "it was answered",
    (error: Error) => error.message,
  );

describe("a file of a commit", () => {
  it("is read from the commit that was found first, also if the branch moves meanwhile", async () => {
    await using files = await CommitFiles.open(remote.path, never);
    const before = await files.idOf("main");
    remote.commit({ "ci.yaml": "version: 2\n" });
    expect((await files.read(before, "ci.yaml", 100))?.toString()).toBe("version: 1\n");
    expect((await files.read(await files.idOf("main"), "ci.yaml", 100))?.toString()).toBe("version: 2\n");
    expect((await files.read(before, "app/package-lock.json", 100))?.toString()).toBe("{}\n");
    expect(await files.read(before, "app/other", 100)).toBeNull();
  });

  it("is refused if it is a link, another repository, a folder's name with a pattern, or too large", async () => {
    remote.commitRaw([
      { mode: "120000", content: "/etc/passwd", path: "ci.yaml" },
      { mode: "100644", content: "x".repeat(200), path: "large" },
    ]);
    await using files = await CommitFiles.open(remote.path, never);
    const head = await files.idOf("main");
    expect(await reason(files.read(head, "ci.yaml", 100))).toContain("is not a regular file");
    expect(await reason(files.read(head, "large", 100))).toContain("is too large");
    expect(await files.read(head, "ci.*", 100)).toBeNull();
    for (const revision of ["--upload-pack=touch /tmp/x", "nowhere", "", "main:ci.yaml"])
      expect(await reason(files.idOf(revision))).toContain("fetch it first");
  });
});
