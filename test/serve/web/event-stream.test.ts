import { describe, expect, it } from "vitest";
import { Client } from "../../../src/serve/web/api/client.ts";
import { EventParser, followEvents, type StreamEvent } from "../../../src/serve/web/api/event-stream.ts";

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

  it("continue after the last one that was seen, until the service says that there are no more", async () => {
    const asked: (string | null)[] = [];
    const answers = [
      "id: 3\nevent: a\ndata: {}\n\nid: 7\nevent: b\ndata: {}\n\nid: 9\ndata: cut",
      "id: 9\nevent: c\ndata: {}\n\n",
      null,
    ];
    class Played extends Client {
      override async send(
        _: string,
        __: string,
        { headers = {} }: { headers?: Record<string, string> } = {},
      ): Promise<Response> {
        asked.push(headers["last-event-id"] ?? null);
        const answer = answers.shift() ?? null;
        return new Response(answer, { status: answer === null ? 204 : 200 });
      }
    }
    const seen: StreamEvent[] = [];
    const see = (events: readonly StreamEvent[]): void => void seen.push(...events);
    await followEvents(new Played("t", () => {}), "/v1/x", { signal: new AbortController().signal, see });
    expect(seen.map(({ type }) => type)).toEqual(["a", "b", "c"]);
    expect(asked).toEqual([null, "7", "9"]);
  });
});
