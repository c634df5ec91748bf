import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { linesBack, linesOf, type TrailLine } from "../../src/audit/seal.ts";

const CHUNK = 256 * 1024;
const shown = (lines: readonly TrailLine[]) =>
  lines.map(({ start, end, bytes }) => [start, end, bytes?.length ?? null]);

it.each([0, 1, 3000, CHUNK - 1, CHUNK, CHUNK + 1, 600_000])(
  "lines of %i bytes are the same from the end as from the beginning, without one that is not ended",
  async (size) => {
    const dir = await mkdtemp(join(tmpdir(), "corral-lines-"));
    const file = join(dir, "lines");
    let text = "";
    for (let index = 0; text.length < size; index += 1) text += `${"x".repeat((index * 7919) % 5000)}\n`;
    for (const content of [text, `${text}torn`, `\n\n${text}`, `${"y".repeat(2 * 1024 ** 2)}\n${text}`]) {
      await writeFile(file, content);
      await using handle = await open(file);
      const forth = (await Array.fromAsync(linesOf(handle, 0, content.length))).flat();
      const back = (await Array.fromAsync(linesBack(handle, content.length))).flat();
      expect(shown(back.toReversed())).toEqual(shown(forth.filter(({ terminated }) => terminated)));
      // A page that begins where another one ended.
      const middle = forth[Math.floor(forth.length / 2)]?.start ?? 0;
      const older = (await Array.fromAsync(linesBack(handle, middle))).flat();
      expect(shown(older.toReversed())).toEqual(shown(forth.filter(({ end }) => end <= middle)));
    }
    await rm(dir, { recursive: true });
  },
);
