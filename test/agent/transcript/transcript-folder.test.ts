import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { TranscriptFolder } from "../../../src/agent/transcript.ts";

const RUN = "0123456789ab";
const OTHER = "ba9876543210";

let state = "";
beforeEach(async () => {
  state = await mkdtemp(join(tmpdir(), "corral-transcripts-"));
});
afterEach(() => rm(state, { recursive: true, force: true }));

async function kept(folder: TranscriptFolder, run: string, ...lines: string[]): Promise<void> {
  await using sink = await folder.open(run);
  for (const line of lines) await sink.write(line);
}

/** Where the one project's transcripts are. */
async function folderBelow(): Promise<string> {
  const [name = ""] = await readdir(join(state, "transcripts"));
  return join(state, "transcripts", name);
}

describe("the transcripts of a project", () => {
  it("are kept line by line as they are written, and read as they were", async () => {
    const folder = new TranscriptFolder(state, "/p");
    await using sink = await folder.open(RUN);
    await sink.write('{"a":1}\n');
    expect(await folder.read(RUN)).toBe('{"a":1}\n');
    await sink.write('{"b":"世"}\n');
    expect(await folder.read(RUN)).toBe('{"a":1}\n{"b":"世"}\n');
    expect(await folder.list()).toMatchObject([{ run: RUN, bytes: 20 }]);
  });

  it("are apart from those of another project, and there are none before the first", async () => {
    const [one, two] = [new TranscriptFolder(state, "/p"), new TranscriptFolder(state, "/p2")];
    expect(await one.list()).toEqual([]);
    expect(await one.read(RUN)).toBeNull();
    await kept(one, RUN, "one\n");
    expect([await two.read(RUN), await two.list()]).toEqual([null, []]);
    await kept(two, RUN, "two\n");
    expect([await one.read(RUN), await two.read(RUN)]).toEqual(["one\n", "two\n"]);
  });

  it("are for the owner's eyes alone", async () => {
    const before = process.umask(0);
    try {
      await kept(new TranscriptFolder(state, "/p"), RUN, "x\n");
    } finally {
      process.umask(before);
    }
    const dir = await folderBelow();
    expect((await stat(join(dir, `${RUN}.jsonl`))).mode & 0o777).toBe(0o600);
    expect((await stat(dir)).mode & 0o777).toBe(0o700);
  });

  it("are listed with the newest first, and nothing else that lies there", async () => {
    const folder = new TranscriptFolder(state, "/p");
    await kept(folder, RUN, "old\n");
    await kept(folder, OTHER, "new\n");
    const dir = await folderBelow();
    await utimes(join(dir, `${RUN}.jsonl`), 1, 1);
    for (const name of ["notes.txt", RUN, `${RUN}.jsonl.bak`, "ABCDEF012345.jsonl"])
      await writeFile(join(dir, name), "");
    expect((await folder.list()).map(({ run }) => run)).toEqual([OTHER, RUN]);
  });

  it.each(["", "..", "../../secret", "a/b", "0123456789AB", `${RUN}\n`, `${RUN}.jsonl`, "0123456789abc"])(
    "are not to be had by %j, which is no id of a run",
    async (run) => {
      const folder = new TranscriptFolder(state, "/p");
      await writeFile(join(state, "secret.jsonl"), "secret");
      expect(await folder.read(run)).toBeNull();
      await expect(folder.open(run)).rejects.toThrow("is not a run id");
      expect(await readdir(state)).toEqual(["secret.jsonl"]);
    },
  );

  it("make room for others: of very many the oldest go", async () => {
    const folder = new TranscriptFolder(state, "/p");
    await kept(folder, RUN, "x\n");
    const dir = await folderBelow();
    const id = (index: number): string => index.toString(16).padStart(12, "0");
    for (let index = 0; index < 1101; index += 1) {
      const file = join(dir, `${id(index)}.jsonl`);
      await writeFile(file, "");
      await utimes(file, 1000 + index, 1000 + index);
    }
    await kept(folder, OTHER, "y\n");
    const left = new Set((await folder.list()).map(({ run }) => run));
    expect(left.size).toBe(1001);
    expect([left.has(OTHER), left.has(RUN), left.has(id(1100)), left.has(id(0)), left.has(id(101))]).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });
});

describe("a transcript that cannot be kept", () => {
  it("is told of once, and the run goes on: its folder is none", async () => {
    await mkdir(join(state, "transcripts"));
    const troubles: string[] = [];
    await kept(new TranscriptFolder(state, "/p", (detail) => troubles.push(detail)), OTHER, "x\n");
    const dir = await folderBelow();
    await rm(dir, { recursive: true });
    await writeFile(dir, "a file in its place");
    await kept(new TranscriptFolder(state, "/p", (detail) => troubles.push(detail)), RUN, "x\n", "y\n");
    expect(troubles).toHaveLength(1);
    expect(troubles[0]).toMatch(new RegExp(`^the transcript of run ${RUN} cannot be written: `));
  });

  it("is never written over another's, nor through a link", async () => {
    const troubles: string[] = [];
    const folder = new TranscriptFolder(state, "/p", (detail) => troubles.push(detail));
    await kept(folder, RUN, "first\n");
    await kept(folder, RUN, "second\n");
    expect(await folder.read(RUN)).toBe("first\n");
    const target = join(state, "target");
    await symlink(target, join(await folderBelow(), `${OTHER}.jsonl`));
    await kept(folder, OTHER, "through\n");
    expect(await readFile(target, "utf8").catch(() => "none")).toBe("none");
    expect(troubles).toHaveLength(2);
  });

  it("is told of where it is longer than is kept, and ends with a whole line", async () => {
    const troubles: string[] = [];
    const folder = new TranscriptFolder(state, "/p", (detail) => troubles.push(detail));
    const line = `${"x".repeat(16 * 1024 * 1024 - 1)}\n`;
    await kept(folder, RUN, line, line, line, line, "one more\n", "and one\n");
    expect((await folder.list())[0]?.bytes).toBe(64 * 1024 * 1024);
    expect(troubles).toEqual([`the transcript of run ${RUN} is longer than 67108864 bytes; the rest is not kept`]);
  });
});
