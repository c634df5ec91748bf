import { describe, expect, it } from "vitest";
import type { AgentToolAnswer } from "../../src/agent/events.ts";
import { ImageRoom, MAX_IMAGE_CHARACTERS } from "../../src/agent/loop.ts";

const withImage = (characters: number): AgentToolAnswer => ({
  ok: true,
  code: null,
  text: "An image.",
  image: { mimeType: "image/png", base64: "A".repeat(characters) },
});

describe("the room for a conversation's images", () => {
  it("is for all of them together: one that does not fit is told as text, and a smaller one still fits", () => {
    const room = new ImageRoom();
    const first = withImage(MAX_IMAGE_CHARACTERS - 10);
    expect(room.admitted(first)).toEqual(first);
    const second = room.admitted(withImage(11));
    expect(second).not.toHaveProperty("image");
    expect(second).toMatchObject({ ok: true, code: null });
    expect(second.text).toMatch(/^An image\.\n\[The image is not shown: .* 32 ?Mi?B/i);
    expect(room.admitted(withImage(10))).toEqual(withImage(10));
    expect(room.admitted(withImage(1))).not.toHaveProperty("image");
  });

  it("is not needed by what has none", () => {
    const plain: AgentToolAnswer = { ok: false, code: "NOT_FOUND", text: "There is none." };
    expect(new ImageRoom().admitted(plain)).toEqual(plain);
  });
});
