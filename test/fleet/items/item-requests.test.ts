import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { ItemSource } from "../../../src/fleet/items/read-items.ts";
import type { ItemRequest, ItemTemplate } from "../../../src/fleet/model/item.ts";
import { itemRequests } from "../../../src/fleet/running/item-result.ts";
import { projectFolder } from "../../declarations/project-folder.ts";

async function requestsOf(source: ItemSource, template: ItemTemplate, cwd = "/") {
  const notes: string[] = [];
  const reading = {
    cwd,
    signal: new AbortController().signal,
    leftOut: () => {},
    note: (text: string) => notes.push(text),
  };
  const requests: ItemRequest[] = await Array.fromAsync(
    itemRequests({ source, template, within: [], templateDir: cwd }, reading),
  );
  return { requests, notes };
}

describe("the requests of items", () => {
  const values = (...values: unknown[]): ItemSource => ({ kind: "values", values });

  it.each<[string, ItemTemplate, number]>([
    ["no template names a field", { input: { all: true }, attach: ["/a"] }, 1],
    ["nothing is said", {}, 1],
    ["only the key names one", { key: "{n}" }, 1],
    ["the input names one", { input: { n: "{n}" } }, 0],
    ["the attachments name one", { attach: ["{n}"] }, 0],
    ["the paths name one", { allowWrite: ["/out/{n}"] }, 0],
  ])("are told to be all the same, or not: %s", async (_, template, count) => {
    expect((await requestsOf(values({ n: "1" }, { n: "2" }, { n: "3" }), template)).notes).toHaveLength(count);
    // Of one item nothing can be said.
    expect((await requestsOf(values({ n: "1" }), template)).notes).toEqual([]);
  });

  it("have a refused one for each file whose name is no text, and a mistake of the template is still told at once", async () => {
    const cwd = await projectFolder({ "inbox/z.pdf": "" });
    await mkdir(join(cwd, "inbox"), { recursive: true });
    for (const byte of [0xe9, 0xff])
      await writeFile(
        Buffer.concat([Buffer.from(join(cwd, "inbox/caf")), Buffer.from([byte]), Buffer.from(".pdf")]),
        "",
      );
    const source = { kind: "glob", pattern: "inbox/*.pdf" } as const;
    const { requests } = await requestsOf(source, { attach: ["{path}=in.pdf"] }, cwd);
    const refused = requests.filter(({ refusal }) => refusal !== undefined);
    expect(refused.map(({ key, attachments }) => [key, attachments]).toSorted()).toEqual([
      ["inbox/caf\\xe9.pdf", []],
      ["inbox/caf\\xff.pdf", []],
    ]);
    expect(requests.filter(({ refusal }) => refusal === undefined)).toMatchObject([
      { attachments: [{ name: "in.pdf" }] },
    ]);
    await expect(requestsOf(source, { attach: ["{pth}"] }, cwd)).rejects.toThrow("there is no field `pth`");
  });
});
