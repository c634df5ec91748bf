import { lstatSync, readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import zlib from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openFleetProject } from "../fleet/fleet-fixture.ts";
import { sh } from "../run/project-fixture.ts";

const MEGABYTE = 1024 ** 2;
const UNZIP = {
  image: "corral/documents",
  command: sh('unzip -q /attachments/in.zip -d "$(jq -r .folder)"'),
  limits: { disk: "20m", timeout: "60s" },
};
const text = { name: "text", mode: "rw", approval: "pre_approved" };

let f: Awaited<ReturnType<typeof openFleetProject>>;

beforeAll(async () => {
  f = await openFleetProject({
    zones: { text: "rw" },
    workers: {
      direct: { ...UNZIP, sandbox: { zones: [text] } },
      staged: { ...UNZIP, sandbox: { zones: [{ ...text, stage: true }] } },
    },
    files: { "text/keep": "" },
  });
  const small = { name: "a.txt", content: Buffer.from("text") };
  await writeFile(join(f.project.dir, "link.zip"), zip([small, { name: "l", content: "/etc/passwd", isLink: true }]));
  await writeFile(
    join(f.project.dir, "bomb.zip"),
    zip([small, { name: "zeros", content: Buffer.alloc(60 * MEGABYTE) }]),
  );
});

afterAll(async () => {
  await f[Symbol.asyncDispose]();
});

/** As the README's `corral map`, with one archive for each item. */
async function unpacked(worker: string) {
  const items = ["link", "bomb"].map((stem) => ({
    key: stem,
    input: { folder: `/text/${worker}-${stem}` },
    attachments: [{ path: join(f.project.dir, `${stem}.zip`), name: "in.zip" }],
    allowRead: [`/text/${worker}-${stem}`],
    allowWrite: [`/text/${worker}-${stem}`],
  }));
  const { results } = await f.map({ worker, concurrency: 1 }, items);
  return { link: results.get("link"), bomb: results.get("bomb") };
}

const inText = (...names: string[]): string => join(f.project.dir, "text", ...names);

describe("an archive with a link to /etc/passwd, and one that unpacks to more than the limit", () => {
  it("reach the output folder of a worker that writes it directly", async () => {
    const { link, bomb } = await unpacked("direct");
    expect(link?.status).toBe("succeeded");
    // A program on the host that follows it reads the host's file.
    expect(readFileSync(inText("direct-link/l"), "utf8")).toBe(readFileSync("/etc/passwd", "utf8"));
    expect(bomb?.status).toMatch(/disk_limit|failed|signaled/);
    expect(readdirSync(inText("direct-bomb"))).toContain("zeros");
  });

  it("do not reach it with `stage: true`: the link is refused, and of a run that failed nothing is applied", async () => {
    const { link, bomb } = await unpacked("staged");
    expect(link).toMatchObject({
      status: "refused",
      error: { message: expect.stringContaining("/text/staged-link/l") },
    });
    expect(readdirSync(inText("staged-link"))).toEqual(["a.txt"]);
    expect(bomb?.status).toMatch(/disk_limit|failed|signaled/);
    expect(() => lstatSync(inText("staged-bomb"))).toThrow("ENOENT");
  });
});

interface Packed {
  readonly name: string;
  readonly content: Buffer | string;
  readonly isLink?: boolean;
}

/** A zip archive as Unix makes it: deflated entries, with file modes, of which one can be a link. */
function zip(entries: readonly Packed[]): Buffer {
  const [parts, central]: [Buffer[], Buffer[]] = [[], []];
  let at = 0;
  for (const { name, content, isLink = false } of entries) {
    const raw = Buffer.from(content);
    const packed = zlib.deflateRawSync(raw);
    const facts = Buffer.alloc(26);
    facts.writeUInt16LE(20, 0);
    facts.writeUInt16LE(8, 4);
    facts.writeUInt32LE(zlib.crc32(raw), 10);
    facts.writeUInt32LE(packed.length, 14);
    facts.writeUInt32LE(raw.length, 18);
    facts.writeUInt16LE(name.length, 22);
    const record = Buffer.alloc(14);
    record.writeUInt32LE(((isLink ? 0o120777 : 0o100644) << 16) >>> 0, 6);
    record.writeUInt32LE(at, 10);
    central.push(Buffer.from("PK\x01\x02\x14\x03", "latin1"), facts, record, Buffer.from(name));
    const local = Buffer.concat([Buffer.from("PK\x03\x04", "latin1"), facts, Buffer.from(name), packed]);
    parts.push(local);
    at += local.length;
  }
  const directory = Buffer.concat(central);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(entries.length, 8);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(directory.length, 12);
  end.writeUInt32LE(at, 16);
  return Buffer.concat([...parts, directory, end]);
}
