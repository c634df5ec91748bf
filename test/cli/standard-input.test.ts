import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "./cli-project.ts";

let folder: CliProject;

beforeAll(async () => {
  folder = await cliProject({ yaml: null, workers: {} });
});
afterAll(async () => {
  await folder[Symbol.asyncDispose]();
});

const command = (...words: string[]) => ["run", "--", ...words];

describe("a command without a declaration", () => {
  it("reads what corral reads, to its end", async () => {
    expect(await folder.built(command("cat"), { stdin: "one\ntwo" })).toMatchObject({ status: 0, stdout: "one\ntwo" });
    expect(await folder.built(command("wc", "-c"))).toMatchObject({ status: 0, stdout: "0\n" });
  });

  it("reads bytes of any size, exactly", async () => {
    const bytes = randomBytes(20_000_000);
    const { child, ended } = folder.start(command("md5sum"), { stdin: bytes });
    expect(await ended).toMatchObject({ stdout: `${createHash("md5").update(bytes).digest("hex")}  -\n` });
    expect(child.exitCode).toBe(0);
  });

  it("gets each piece when it comes, and an end that comes later", async () => {
    const { child, ended } = folder.start(command("sh", "-c", "read a; echo $a; cat"), { stdin: null });
    child.stdin?.write("first\n");
    const [heard] = await once(child.stdout as NodeJS.ReadableStream, "data");
    expect(String(heard)).toBe("first\n");
    child.stdin?.end("last");
    expect(await ended).toMatchObject({ status: 0, stdout: "first\nlast" });
  });

  it("holds back who writes more than it reads, and ends without reading all of it", async () => {
    const zero = await open("/dev/zero");
    try {
      const { child, ended } = folder.start(command("sh", "-c", "head -c 9; sleep 1; exit 3"), { stdin: null });
      const source = zero.createReadStream({ autoClose: false, highWaterMark: 65_536 });
      if (child.stdin !== null) source.pipe(child.stdin);
      expect(await ended).toMatchObject({ status: 3, stdout: "\0".repeat(9) });
      // What the pipes between them hold, and no more.
      expect(source.bytesRead).toBeLessThan(16 * 1024 * 1024);
    } finally {
      await zero.close();
    }
  });

  it("ends while its input is still open", async () => {
    const { child, ended } = folder.start(command("head", "-1"), { stdin: null });
    child.stdin?.write("a\n");
    expect(await ended).toMatchObject({ status: 0, stdout: "a\n" });
  });

  it("has no input but --input where that is given, and nothing that is kept in the record", async () => {
    const given = await folder.built(["run", "--input", "[1]", "--", "cat"], { stdin: "secret" });
    expect(given.stdout).toBe("[1]\n");
    await folder.corral(command("wc", "-c"), { stdin: "a secret" });
    const shown = await folder.corral(["runs", "show", "latest", "--json"]);
    expect(shown.stdout).not.toContain("a secret");
  });
});

describe("a reader that has gone", () => {
  it("ends the run soon, with what a shell says of SIGPIPE, and leaves nothing", async () => {
    const { child, ended } = folder.start(command("sh", "-c", "while sleep 0.2; do echo x; done"));
    await once(child.stdout as NodeJS.ReadableStream, "data");
    child.stdout?.destroy();
    const { status, stderr } = await ended;
    expect(stderr).toContain("corral: Nobody reads the output any more");
    expect(status).toBe(141);
    expect(await folder.cells()).toEqual([]);
  });

  it("loses nothing that was printed before: a worker that is quick ends by itself", async () => {
    await writeFile(join(folder.dir, "lines"), "x\n".repeat(1000));
    const { child, ended } = folder.start(["run", "--ro", "lines", "--", "sh", "-c", "cat /lines; exit 5"]);
    let text = "";
    child.stdout?.on("data", (chunk) => {
      text += chunk;
    });
    expect((await ended).status).toBe(5);
    expect(text).toHaveLength(2000);
  });
});
