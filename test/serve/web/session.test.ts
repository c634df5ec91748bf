import { describe, expect, it } from "vitest";
import { hrefTo, mayDo, parsePageAddress, Shortcuts } from "../../../src/serve/web/app/resource.ts";
import { nextTheme, takeToken } from "../../../src/serve/web/session/session.ts";

function store(): Pick<Storage, "getItem" | "setItem" | "removeItem"> {
  const kept = new Map<string, string>();
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => void kept.set(key, value),
    removeItem: (key) => void kept.delete(key),
  };
}

describe("a token in a link", () => {
  it("leaves the address at once, and stays in the session", () => {
    const shown: string[] = [];
    const history = {
      replaceState: (_: unknown, __: string, url?: string | URL | null) => void shown.push(String(url)),
    };
    const session = store();
    expect(takeToken({ hash: "#token=corral_x" }, history, session)).toBe("corral_x");
    expect(takeToken({ hash: "#token=corral_x&to=/runs/abc" }, history, session)).toBe("corral_x");
    expect(takeToken({ hash: "#token=corral_x&to=javascript:alert(1)" }, history, session)).toBe("corral_x");
    expect(shown).toEqual(["#/", "#/runs/abc", "#/"]);
    expect(takeToken({ hash: "#/runs" }, history, session)).toBe("corral_x");
    expect(shown).toHaveLength(3);
  });
});

describe("an address of the page", () => {
  it("is the same after it was written and read", () => {
    const href = hrefTo(["runs", "a/b?c"], { status: "failed", worker: "", search: "a&b=c" });
    expect(parsePageAddress(href)).toEqual({ parts: ["runs", "a/b?c"], query: { status: "failed", search: "a&b=c" } });
  });

  it.each(["", "#", "#/"])("is the overview for %j", (hash) => {
    expect(parsePageAddress(hash)).toEqual({ parts: [], query: {} });
  });

  it("may be nonsense", () => {
    expect(parsePageAddress("#/runs/%E0%A4%A?%")).toMatchObject({ parts: ["runs", "%E0%A4%A"] });
  });
});

describe("the keyboard", () => {
  it("takes one key, or two after each other in time; the last that was added wins", () => {
    const done: string[] = [];
    const shortcuts = new Shortcuts();
    const add = (keys: string, what: string) =>
      shortcuts.add("x", [{ keys, does: what, act: () => void done.push(what) }]);
    add("g r", "runs");
    add("r", "reload");
    const remove = add("r", "other");
    shortcuts.press("r", 0);
    remove();
    shortcuts.press("r", 1);
    shortcuts.press("g", 10);
    shortcuts.press("r", 500);
    shortcuts.press("g", 1000);
    shortcuts.press("r", 5000);
    expect(done).toEqual(["other", "reload", "runs", "reload"]);
    expect(shortcuts.press("q", 0)).toBe(false);
  });
});

describe("what a token may do", () => {
  it("is what the service would permit", () => {
    expect(mayDo(["admin"], "decide")).toBe(true);
    expect(mayDo(["run"], "decide")).toBe(false);
    expect(mayDo(["run"], "read")).toBe(true);
    expect(mayDo([], "read")).toBe(false);
  });
});

describe("the theme", () => {
  it("has three values", () => {
    expect(nextTheme(nextTheme(nextTheme("auto")))).toBe("auto");
  });
});
