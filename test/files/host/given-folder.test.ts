import { chown, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openHostFiles } from "../../../src/files/host/host-files.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";

it.runIf(process.geteuid?.() === 0)(
  "an empty folder that a killed process made and did not give away is given to its owner, and no other is",
  async () => {
    const host = await mkdtemp(join(tmpdir(), "given-"));
    try {
      await chown(host, 65532, 65532);
      for (const name of ["empty", "full"]) await mkdir(join(host, name));
      await writeFile(join(host, "full/kept"), "");
      using files = openHostFiles([{ path: "/out" as VirtualPath, host }]);
      for (const name of ["empty", "full"])
        await files.mkdir({ path: `/out/${name}` as VirtualPath, mount: "/out" as VirtualPath, parts: [name] });
      expect((await stat(join(host, "empty"))).uid).toBe(65532);
      expect((await stat(join(host, "full"))).uid).toBe(0);
    } finally {
      await rm(host, { recursive: true, force: true });
    }
  },
);
