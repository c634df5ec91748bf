import { Terminal } from "@xterm/headless";
import { describe, expect, it } from "vitest";
import { keyText, pastedText, screenRow } from "../../../src/serve/web/text/ansi.ts";

async function screen(text: string): Promise<Terminal> {
  const terminal = new Terminal({ cols: 20, rows: 3, allowProposedApi: true });
  await new Promise<void>((resolve) => terminal.write(text, resolve));
  return terminal;
}

const row = async (text: string, cursor: number | null = null) =>
  screenRow((await screen(text)).buffer.active, 0, cursor).map(({ text: part, look }) => {
    const { color, ground, ...rest } = look;
    const marks = Object.entries(rest).flatMap(([name, is]) => (is ? [name] : []));
    return [part, color, ground, ...marks];
  });

describe("a row of a terminal's screen", () => {
  it("has the nearest colours of the page, and wide characters once", async () => {
    expect(await row("a\x1b[1;31mb\x1b[0;48;5;21mc\x1b[0m字d\x1b[38;2;250;0;0;7me")).toEqual([
      ["a", null, null],
      ["b", 1, null, "isBold"],
      ["c", null, 4],
      ["字d", null, null],
      ["e", 1, null, "isInverse"],
    ]);
  });

  it("hides no text: neither what is concealed, nor what has the colour of its ground", async () => {
    expect(await row("\x1b[8mone\x1b[0;31;41mtwo")).toEqual([
      ["one", null, null],
      ["two", 1, null],
    ]);
  });

  it("shows the cursor where it is, also behind the text", async () => {
    expect(await row("ab", 1)).toEqual([
      ["a", null, null],
      ["b", null, null, "isCursor"],
    ]);
    expect(await row("ab", 4)).toEqual([
      ["ab  ", null, null],
      [" ", null, null, "isCursor"],
    ]);
  });
});

describe("keys for a terminal", () => {
  const key = (name: string, held: Partial<Parameters<typeof keyText>[0]> = {}, isApplication = false) =>
    keyText({ key: name, ctrlKey: false, altKey: false, metaKey: false, shiftKey: false, ...held }, isApplication);

  it("become what programs read", () => {
    expect(key("Enter")).toBe("\r");
    expect(key("ArrowUp")).toBe("\x1b[A");
    expect(key("ArrowUp", {}, true)).toBe("\x1bOA");
    expect(key("ArrowLeft", { ctrlKey: true })).toBe("\x1b[1;5D");
    expect(key("c", { ctrlKey: true })).toBe("\x03");
    expect(key("b", { altKey: true })).toBe("\x1bb");
    expect(key("Tab")).toBe("\t");
  });

  it("are the browser's where they are text, paste, or leave the terminal", () => {
    expect(key("a")).toBeNull();
    expect(key("Tab", { shiftKey: true })).toBeNull();
    expect(key("v", { ctrlKey: true })).toBeNull();
    expect(key("c", { metaKey: true })).toBeNull();
    expect(key("C", { ctrlKey: true, shiftKey: true })).toBeNull();
  });

  it("are not pressed by a text that is pasted", () => {
    expect(pastedText("a\r\nb\x1b[201~rm\x03\ttä", true)).toBe("\x1b[200~a\rb[201~rm\ttä\x1b[201~");
    expect(pastedText("a\nb", false)).toBe("a\rb");
  });
});
