import { describe, expect, it } from "vitest";
import { EventParser } from "../../src/client/client.ts";

describe("server-sent events", () => {
  it("are the same in whatever pieces they come", () => {
    const text =
      ': events\n\nid: 5\nevent: output\ndata: {"text":"a\\nb"}\n\n: idle\n\nid: 9\nevent: ended\ndata: {}\n\n';
    for (let at = 0; at <= text.length; at += 1) {
      const parser = new EventParser();
      const events = [...parser.push(text.slice(0, at)), ...parser.push(text.slice(at))];
      expect(events).toEqual([
        { id: "5", type: "output", data: '{"text":"a\\nb"}' },
        { id: "9", type: "ended", data: "{}" },
      ]);
    }
  });

  it("are bounded", () => {
    const parser = new EventParser();
    expect(() => {
      for (let count = 0; count < 40; count += 1) parser.push("x".repeat(1024 ** 2));
    }).toThrow("too long");
  });
});
