import { execFileSync } from "node:child_process";
import { chmod, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  baseImagesOf,
  MAX_BUILD_BYTES,
  MAX_BUILD_FILES,
  readBuildFolder,
} from "../../../src/declarations/images/build-folder.ts";
import { projectFolder } from "../project-folder.ts";

const DOCKERFILE = "FROM corral/base\n";

async function folder(files: Record<string, string> = {}): Promise<string> {
  return await projectFolder({ Dockerfile: DOCKERFILE, ...files });
}

async function readNames(dir: string): Promise<string[]> {
  const read = await readBuildFolder(dir);
  if (!read.ok) throw new Error(read.fault);
  return read.value.files.map(({ name }) => name);
}

async function digestOf(dir: string): Promise<string> {
  const read = await readBuildFolder(dir);
  if (!read.ok) throw new Error(read.fault);
  return read.value.sha256;
}

describe("readBuildFolder", () => {
  it("has the same digest for the same names, contents and executable bits", async () => {
    const [a, b] = [await folder({ "x/run.sh": "1" }), await folder({ "x/run.sh": "1" })];
    expect(await digestOf(a)).toBe(await digestOf(b));
    await chmod(join(b, "x/run.sh"), 0o755);
    expect(await digestOf(a)).not.toBe(await digestOf(b));
    await chmod(join(b, "x/run.sh"), 0o640);
    expect(await digestOf(a)).toBe(await digestOf(b));
    await writeFile(join(b, "x/run.sh"), "2");
    expect(await digestOf(a)).not.toBe(await digestOf(b));
  });

  it("refuses symbolic links and what is no file, wherever they are", async () => {
    const linked = await folder({ "x/y/": "" });
    await symlink("/etc/passwd", join(linked, "x/y/passwd"));
    expect(await readBuildFolder(linked)).toEqual({
      ok: false,
      fault: "x/y/passwd is a symbolic link, which no build takes",
    });
    const directory = await folder();
    await symlink("/etc", join(directory, "etc"));
    expect(await readBuildFolder(directory)).toMatchObject({ ok: false });
    const fifo = await folder();
    execFileSync("mkfifo", [join(fifo, "pipe")]);
    expect(await readBuildFolder(fifo)).toEqual({ ok: false, fault: "pipe is no regular file, which no build takes" });
  });

  it("refuses what is too much, without reading it", async () => {
    const large = await folder({ big: "" });
    await truncate(join(large, "big"), MAX_BUILD_BYTES + 1);
    expect(await readBuildFolder(large)).toEqual({ ok: false, fault: "it has more than 64 MiB" });
    const names = Array.from({ length: MAX_BUILD_FILES }, (_, index) => [`f${index}`, ""]);
    expect(await readBuildFolder(await folder(Object.fromEntries(names)))).toEqual({
      ok: false,
      fault: `it has more than ${MAX_BUILD_FILES} files`,
    });
  });

  it("leaves out what .dockerignore names, but never the Dockerfile", async () => {
    const ignore = "# a comment\nnode_modules\n*.log\n/doc/*.md\n**/cache/\nDockerfile\n";
    const dir = await folder({
      ".dockerignore": ignore,
      "node_modules/a/b.js": "",
      "x.log": "",
      "deep/x.log": "",
      "doc/a.md": "",
      "doc/deep/a.md": "",
      "a/b/cache/c": "",
      "a/cached": "",
    });
    expect(await readNames(dir)).toEqual(["Dockerfile", "a/cached", "deep/x.log", "doc/deep/a.md"]);
    const exception = await folder({ ".dockerignore": "*.md\n!a.md\n" });
    expect(await readBuildFolder(exception)).toMatchObject({
      fault: ".dockerignore has a line with `!`, which Corral does not take",
    });
  });

  it("has nothing without a Dockerfile", async () => {
    expect(await readBuildFolder(await projectFolder({ x: "" }))).toEqual({ ok: false, fault: "it has no Dockerfile" });
  });
});

const braced = (text: string): string => `\${${text}}`;

describe("baseImagesOf", () => {
  it.each([
    ["FROM corral/base\n", ["corral/base"]],
    ["ARG BASE=corral/base\nFROM $BASE\n", ["corral/base"]],
    [
      `arg A=x B="debian:12"\nfrom --platform=linux/amd64 ${braced("B")} as one\nFROM one\nFROM scratch\n`,
      ["debian:12"],
    ],
    [`FROM ${braced("X:-debian")}\n`, ["debian"]],
    [
      "FROM a AS one\nFROM b\nCOPY --from=one /x /x\nCOPY --from=0 /x /x\nCOPY --chown=1 --from=c /x /x\n",
      ["a", "b", "c"],
    ],
    ["# FROM no\nFROM \\\n  debian:12\n", ["debian:12"]],
  ])("%j", (text, bases) => {
    expect(baseImagesOf(text)).toEqual({ ok: true, value: bases });
  });

  it("refuses a base without a value, and a file without a base", () => {
    expect(baseImagesOf("ARG BASE\nFROM $BASE\n")).toEqual({
      ok: false,
      fault: "its Dockerfile has FROM $BASE, which has no default",
    });
    expect(baseImagesOf("RUN x\n")).toEqual({ ok: false, fault: "its Dockerfile has no FROM" });
  });
});
