import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { impliedProject, outwardLinks } from "../../src/cli/declared/declared-worker.ts";

let dir: string;

beforeAll(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), "corral-implied-")));
  for (const folder of [
    "inbox",
    "out",
    "a=b",
    "etc",
    "two words",
    "two-words",
    "ünï (1)",
    ".hidden",
    "語",
    "deep/inbox",
    "back\\slash",
  ])
    await mkdir(join(dir, folder), { recursive: true });
  await writeFile(join(dir, "one.pdf"), "");
  await symlink("inbox", join(dir, "linked"));
});
afterAll(() => rm(dir, { recursive: true }));

const here = () => ({ cwd: dir, env: { HERE: "has\na = value" } });
const paths = async (options: Parameters<typeof impliedProject>[0]) =>
  (await impliedProject(options, ["ls"], here())).paths;

describe("--ro and --rw", () => {
  it("name a mount by the last part of its real path, or by what follows `=`", async () => {
    expect(await paths({ ro: ["./inbox/", "deep/inbox=more"], rw: ["out"] })).toMatchObject([
      { name: "inbox", path: "./inbox/", mode: "ro", create: false },
      { name: "more", path: "deep/inbox", mode: "ro", create: false },
      { name: "out", path: "out", mode: "rw", create: true },
    ]);
    expect(await paths({ ro: ["linked"] })).toMatchObject([{ name: "inbox", path: "linked" }]);
    expect(await paths({ ro: ["one.pdf"] })).toMatchObject([{ name: "one.pdf", file: "one.pdf" }]);
    expect(await paths({ ro: ["/"] }), "which the rules for all mounts refuse").toMatchObject([{ name: "host" }]);
  });

  it("have the place that the name says, whatever it is; then a name is made of it", async () => {
    expect(await paths({ ro: ["two words", "two-words", "ünï (1)", "a=b", ".hidden", "語"] })).toMatchObject([
      { name: "two-words", place: "/two words" },
      { name: "two-words-2", place: "/two-words" },
      { name: "uni-1", place: "/ünï (1)" },
      { name: "a-b", place: "/a=b" },
      { name: "hidden", place: "/.hidden" },
      { name: "folder", place: "/語" },
    ]);
    expect(await paths({ ro: ["inbox=My Documents"] })).toMatchObject([
      { name: "My-Documents", place: "/My Documents" },
    ]);
  });

  it("make a missing folder below the working directory, and no other", async () => {
    expect(await paths({ rw: ["new/deep"] })).toMatchObject([{ name: "deep", create: true }]);
    await expect(paths({ rw: ["../elsewhere"] })).rejects.toThrow("only one below the working directory is made");
    await expect(paths({ ro: ["new"] })).rejects.toThrow(/^--ro new: there is no such file or folder$/);
    // What Node makes of a byte that is not UTF-8.
    await expect(paths({ ro: ["caf\uFFFD"] })).rejects.toThrow("no such file or folder. Its name is not UTF-8");
  });

  it.each([
    [
      { ro: ["inbox", "deep/inbox"] },
      "another --ro or --rw has the name inbox; write PATH=NAME, such as --ro deep/inbox=in",
    ],
    [{ ro: ["etc"] }, 'the name "etc" is reserved: it would hide a system directory of the cell; write PATH=NAME'],
    [{ ro: ["back\\slash"] }, "write PATH=NAME, such as --ro 'back\\slash'=in"],
    [{ env: ["NOT_HERE"] }, "--env NOT_HERE: there is no such variable here; write NAME=VALUE"],
    [{ name: "a b" }, "--name a b: a worker's name must be"],
    [{ name: "a", save: "b" }, "use either --save or --name"],
    [{ ro: [""] }, "its value is empty"],
    [{ ro: ["\u001b[2J\u202e"] }, /^[\x20-\x7e]*$/],
    [{ apply: true, approve: "auto_deny" as const }, "use either --apply or --approve"],
    [{ save: "../x" }, "a worker's name must be 1 to 64 letters"],
  ])("refuse %j", async (options, says) => {
    await expect(paths(options)).rejects.toThrow(says);
  });
});

it("has limits as they are typed, and variables of their own or of here", async () => {
  const options = { timeout: "5m", cpus: "2", env: ["A=b=c", "EMPTY=", "HERE"], workdir: "/inbox", name: "x" };
  expect(await impliedProject(options, ["ls"], here())).toMatchObject({
    limits: { timeout: "5m", cpus: "2" },
    env: { A: "b=c", EMPTY: "", HERE: "has\na = value" },
    workdir: "/inbox",
    name: "x",
  });
});

it("announces links that lead out of a folder, absolute ones and those to its parents, and no others", async () => {
  const [links, inner] = [join(dir, "links"), join(dir, "links/inner")];
  await mkdir(inner, { recursive: true });
  await symlink("inner", join(links, "in"));
  await symlink("../other", join(inner, "in"));
  expect(await outwardLinks(links)).toBeNull();
  await symlink("/etc/passwd", join(links, "a\u001b[31m"));
  expect(await outwardLinks(links)).toMatch(
    /^a link leads out of .*links and shows nothing of this machine: a\\u\{1b\}\[31m$/,
  );
  await symlink("../../up", join(inner, "out"));
  expect(await outwardLinks(links)).toMatch(/^links lead out of .* and 1 more$/);
  expect(await outwardLinks(join(dir, "nowhere"))).toBeNull();
});

it("is under the strictest policy if none is named", async () => {
  expect(await impliedProject({}, null, here())).toMatchObject({
    policy: "untrusted",
    image: "corral/base",
    approval: "interactive",
    name: "session",
    runsCommands: true,
  });
  expect(await impliedProject({ policy: "default", apply: true }, ["ls"], here())).toMatchObject({
    policy: "default",
    approval: "approve_all",
  });
});
