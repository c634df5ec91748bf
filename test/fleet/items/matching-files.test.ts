import { execFileSync } from "node:child_process";
import { mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { folderOf, readItems } from "../../../src/fleet/items/read-items.ts";
import { projectFolder } from "../../declarations/project-folder.ts";
import { collected } from "./collected.ts";

const TREE = {
  "inbox/b.pdf": "",
  "inbox/a.pdf": "",
  "inbox/a-b/x.pdf": "",
  "inbox/a/x.pdf": "",
  "inbox/a/deep/y.pdf": "",
  "inbox/report (1).pdf": "",
  "inbox/note.txt": "",
  "inbox/.hidden.pdf": "",
  "inbox/.git/z.pdf": "",
  "other/a.pdf": "",
};

async function placesOf(pattern: string, cwd: string): Promise<string[]> {
  const { items, fault } = await collected({ kind: "glob", pattern }, cwd);
  expect(fault).toBeNull();
  return items.map(({ place }) => place);
}

describe("a pattern over files", () => {
  it.each([
    ["inbox/*.pdf", ["inbox/a.pdf", "inbox/b.pdf", "inbox/report (1).pdf"]],
    [
      "inbox/**/*.pdf",
      ["inbox/a/deep/y.pdf", "inbox/a/x.pdf", "inbox/a-b/x.pdf", "inbox/a.pdf", "inbox/b.pdf", "inbox/report (1).pdf"],
    ],
    ["inbox/*/?.pdf", ["inbox/a/x.pdf", "inbox/a-b/x.pdf"]],
    ["./inbox/{a,b}.pdf", ["inbox/a.pdf", "inbox/b.pdf"]],
    ["inbox/[!a]*.{pdf,txt}", ["inbox/b.pdf", "inbox/note.txt", "inbox/report (1).pdf"]],
    ["*/a.pdf", ["inbox/a.pdf", "other/a.pdf"]],
    ["inbox/a.pdf", ["inbox/a.pdf"]],
    ["inbox/report (1).pdf", ["inbox/report (1).pdf"]],
    ["inbox/.*.pdf", ["inbox/.hidden.pdf"]],
    ["inbox/**/.git/*.pdf", ["inbox/.git/z.pdf"]],
    ["inbox/.git/*", ["inbox/.git/z.pdf"]],
    ["inbox/*", ["inbox/a.pdf", "inbox/b.pdf", "inbox/note.txt", "inbox/report (1).pdf"]],
  ])("%s finds its files, sorted, and hidden ones only where it says so", async (pattern, places) => {
    const cwd = await projectFolder(TREE);
    expect((await placesOf(pattern, cwd)).toSorted()).toEqual(places.toSorted());
  });

  it("is refused if it matches no file, with the folder that was searched", async () => {
    const cwd = await projectFolder(TREE);
    await symlink("a.pdf", join(cwd, "inbox/link.md"));
    for (const [pattern, folder, more] of [
      ["inbox/*.txt.gz", "inbox", ""],
      ["./other/**/*.doc", "other", ""],
      ["inbox/a/nothing.pdf", "inbox/a", ""],
      ["inbox/*.md", "inbox", "; 1 entry was left out"],
    ] as const) {
      const { items, fault } = await collected({ kind: "glob", pattern }, cwd);
      expect(items).toEqual([]);
      expect(fault).toBe(
        `${pattern}: no file in ${join(cwd, folder)} matches${more}. Check the pattern and the folder.`,
      );
    }
  });

  it("gives them in one order, whatever the file system's is", async () => {
    const cwd = await projectFolder(TREE);
    expect(await placesOf("inbox/**/*.pdf", cwd)).toEqual([
      "inbox/a/deep/y.pdf",
      "inbox/a/x.pdf",
      "inbox/a-b/x.pdf",
      "inbox/a.pdf",
      "inbox/b.pdf",
      "inbox/report (1).pdf",
    ]);
  });

  it("says of each file where it is: absolute, and from the folder that the pattern spells out", async () => {
    const cwd = await projectFolder(TREE);
    const { items } = await collected({ kind: "glob", pattern: "inbox/**/y.pdf" }, cwd);
    expect(items).toMatchObject([
      {
        index: 0,
        place: "inbox/a/deep/y.pdf",
        fields: {
          path: join(cwd, "inbox/a/deep/y.pdf"),
          relative: "a/deep/y.pdf",
          dir: "a/deep",
          name: "y.pdf",
          stem: "y",
          ext: ".pdf",
        },
      },
    ]);
    expect(folderOf({ kind: "glob", pattern: "inbox/**/y.pdf" }, cwd)).toBe(join(cwd, "inbox"));
  });

  it("may begin above the working directory, or at the root", async () => {
    const cwd = await projectFolder(TREE);
    expect(await placesOf("../inbox/b.*", join(cwd, "other"))).toEqual(["../inbox/b.pdf"]);
    expect(await placesOf(join(cwd, "inbox/b.*"), "/")).toEqual([join(cwd, "inbox/b.pdf")]);
  });

  it.each([
    ["", /an empty pattern/],
    ["inbox/", /names a directory/],
    ["..", /names a directory/],
    ["inbox/../*.pdf", /`\.\.` is allowed only at the start/],
    ["/../*.pdf", /`\.\.` is allowed only at the start/],
    ["a\\*b", /cannot contain backslashes or control/],
    ["{a,b/c}/*", /cannot contain a `\/`/],
    ["**/**/**/**/*", /at most 3 times/],
    ["a**b", /must be alone/],
    ["*a*b*c*d", /at most 3 wildcards/],
    ["nowhere/*.pdf", /nowhere\/\*\.pdf: .*\/nowhere does not exist/],
    ["inbox/a.pdf/*", /a\.pdf is not a directory/],
  ])("is refused where it cannot be meant: %j", async (pattern, fault) => {
    const cwd = await projectFolder(TREE);
    expect((await collected({ kind: "glob", pattern }, cwd)).fault).toMatch(fault);
  });

  it("follows no link, and says what it left out", async () => {
    const cwd = await projectFolder({ "inbox/a.pdf": "", "secret/s.pdf": "" });
    await symlink("../secret", join(cwd, "inbox/dir"));
    await symlink("../secret/s.pdf", join(cwd, "inbox/link.pdf"));
    await symlink("../secret", join(cwd, "inbox/.hidden"));
    await mkdir(join(cwd, "inbox/folder.pdf"));
    execFileSync("mkfifo", [join(cwd, "inbox/pipe.pdf")]);
    const { items, leftOut } = await collected({ kind: "glob", pattern: "inbox/**/*.pdf" }, cwd);
    expect(items.map(({ place }) => place)).toEqual(["inbox/a.pdf"]);
    expect(leftOut.toSorted((a, b) => (a.place < b.place ? -1 : 1))).toEqual([
      { place: "inbox/dir", why: "is a symbolic link, which is not followed" },
      { place: "inbox/link.pdf", why: "is a symbolic link, which is not followed" },
      { place: "inbox/pipe.pdf", why: "is not a regular file" },
    ]);
  });

  it("refuses a link in the place of a folder that it spells out", async () => {
    const cwd = await projectFolder({ "secret/s.pdf": "" });
    await symlink("secret", join(cwd, "inbox"));
    expect((await collected({ kind: "glob", pattern: "inbox/*.pdf" }, cwd)).fault).toMatch(
      /inbox is a symbolic link, which is not followed; name the directory itself$/,
    );
  });

  it("is not led elsewhere by a folder that is swapped for a link while it walks", async () => {
    const cwd = await projectFolder({
      "inbox/a.pdf": "",
      "inbox/sub/x.pdf": "",
      "secret/s.pdf": "",
      "secret/x.pdf": "",
    });
    const seen: string[] = [];
    const told: string[] = [];
    const reading = { cwd, signal: new AbortController().signal, leftOut: () => {} };
    for await (const { place, refusal } of readItems({ kind: "glob", pattern: "inbox/**/*.pdf" }, reading)) {
      if (refusal !== undefined) {
        told.push(refusal);
        continue;
      }
      seen.push(place);
      await rename(join(cwd, "inbox/sub"), join(cwd, "moved"));
      await symlink("../secret", join(cwd, "inbox/sub"));
    }
    expect(seen).toEqual(["inbox/a.pdf"]);
    expect(told).toEqual(["inbox/sub does not exist: a part of its path is not a folder"]);
  });

  it("has an item that is refused for what is no UTF-8 or too deep, and the others as they are", async () => {
    const cwd = await projectFolder({ "inbox/z.pdf": "" });
    await writeFile(Buffer.concat([Buffer.from(join(cwd, "inbox/")), Buffer.from([0xff]), Buffer.from(".pdf")]), "");
    const deep = join(cwd, "inbox", ...Array.from({ length: 70 }, () => "d"));
    await mkdir(deep, { recursive: true });
    await writeFile(join(deep, "far.pdf"), "");
    const { items, leftOut } = await collected({ kind: "glob", pattern: "inbox/**/*.pdf" }, cwd);
    expect(leftOut).toEqual([]);
    expect(items.map(({ index }) => index)).toEqual([0, 1, 2]);
    const refused = items.flatMap(({ refusal }) => refusal ?? []);
    expect(items.filter(({ refusal }) => refusal === undefined).map(({ place }) => place)).toEqual(["inbox/z.pdf"]);
    expect(refused.toSorted()).toEqual([
      "inbox/\\xff.pdf has a name that is not UTF-8: rename it, and run this again",
      expect.stringMatching(/^inbox\/d\/d\/.* is more than 64 directories deep$/),
    ]);
  });

  it("leaves no descriptor open when nobody asks any more", async () => {
    const cwd = await projectFolder(TREE);
    const reading = { cwd, signal: new AbortController().signal, leftOut: () => {} };
    const openFiles = () => execFileSync("ls", [`/proc/${process.pid}/fd`], { encoding: "utf8" }).split("\n").length;
    const before = openFiles();
    for (let round = 0; round < 50; round += 1) {
      for await (const _ of readItems({ kind: "glob", pattern: "inbox/**/y.pdf" }, reading)) break;
    }
    expect(openFiles()).toBeLessThan(before + 10);
    await rm(cwd, { recursive: true });
  });
});
