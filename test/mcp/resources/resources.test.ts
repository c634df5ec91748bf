import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { HANDY_PROJECT, type McpProject, mcpProject } from "../mcp-project.ts";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=",
  "base64",
);

let mcp: McpProject;

beforeAll(async () => {
  mcp = await mcpProject({
    ...HANDY_PROJECT,
    workers: {
      ...HANDY_PROJECT.workers,
      blind: { command: ["true"], sandbox: { zones: [{ name: "docs" }] }, tools: ["list_files", "exec"] },
    },
  });
  const docs = join(mcp.project.dir, "docs");
  await mkdir(join(docs, "sub dir/deep"), { recursive: true });
  await writeFile(join(docs, "sub dir/deep/c.md"), "# deep\n");
  await writeFile(join(docs, "i.png"), PNG);
  await writeFile(join(docs, "b.bin"), Buffer.from([0, 1, 0, 2]));
  await writeFile(join(docs, "long.txt"), "a".repeat(2_000_001));
  const many = Array.from({ length: 250 }, (_, index) => `n${String(index).padStart(3, "0")}`);
  await Promise.all(many.map((name) => writeFile(join(mcp.project.dir, "out", name), name)));
});
afterEach(() => mcp.leave());
afterAll(() => mcp?.[Symbol.asyncDispose]());

describe.each([false, true])("resources (2026-07-28: %s)", (modern) => {
  it("are the directories and files at the top, page by page, each once", async () => {
    const { client } = await mcp.connect({ modern });
    const pages: string[][] = [];
    let cursor: string | undefined;
    do {
      // The SDK's own listing would walk all pages.
      const page: { resources: { uri: string }[]; nextCursor?: string | undefined } = await client.request({
        method: "resources/list",
        params: cursor === undefined ? {} : { cursor },
      });
      pages.push(page.resources.map(({ uri }) => uri));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    expect(pages.map(({ length }) => length)).toEqual([100, 100, 57]);
    const uris = pages.flat();
    expect(new Set(uris).size).toBe(uris.length);
    expect(uris.slice(0, 6)).toEqual([
      "corral:///docs",
      "corral:///docs/a.txt",
      "corral:///docs/b.bin",
      "corral:///docs/i.png",
      "corral:///docs/long.txt",
      "corral:///docs/sub%20dir",
    ]);
    for (const bad of ["x", "-1", "1e9", "../1", "999999"]) {
      const asked = client.request({ method: "resources/list", params: { cursor: bad } });
      await expect(asked).rejects.toMatchObject({ code: -32602 });
    }
    const { resourceTemplates } = await client.listResourceTemplates();
    expect(resourceTemplates).toMatchObject([{ uriTemplate: "corral:///{+path}" }]);
  });

  it("are read as texts and images, and directories as the URIs in them", async () => {
    const { client } = await mcp.connect({ modern });
    const read = async (uri: string) => (await client.readResource({ uri })).contents[0];
    const deep = "corral:///docs/sub%20dir/deep/c.md";
    expect(await read(deep)).toEqual({ uri: deep, mimeType: "text/plain", text: "# deep\n" });
    const image = "corral:///docs/i.png";
    expect(await read(image)).toEqual({ uri: image, mimeType: "image/png", blob: PNG.toString("base64") });
    expect(await read("corral:///docs/sub%20dir")).toMatchObject({
      mimeType: "text/uri-list",
      text: "corral:///docs/sub%20dir/deep/",
    });
    expect(await read("corral:///")).toMatchObject({ text: "corral:///docs/\ncorral:///out/" });
  });

  it("say why they cannot be read: too long, binary, not there, or outside", async () => {
    const { client } = await mcp.connect({ modern });
    const fault = (uri: string) =>
      client.readResource({ uri }).then(
        () => "read",
        ({ code, message }) => `${code} ${message}`,
      );
    expect(await fault("corral:///docs/long.txt")).toContain("-32602 The content is too long");
    expect(await fault("corral:///docs/b.bin")).toMatch(/^-32602 .*b\.bin/);
    expect(await fault("corral:///docs/none")).toMatch(/^-32(602|002) /);
    expect(await fault("corral:///etc/passwd")).toMatch(/^-32(602|002) /);
    expect(await fault("corral:///docs/../../etc/passwd")).toContain("-32602 The URI names no file");
  });

  it("are none of a worker that may not read files by tools", async () => {
    const { client } = await mcp.connect({ modern, args: ["--worker", "blind"] });
    expect(client.getServerCapabilities()?.resources).toBeUndefined();
    const asked = client.request({ method: "resources/read", params: { uri: "corral:///docs/a.txt" } });
    await expect(asked).rejects.toThrow();
  });
});
