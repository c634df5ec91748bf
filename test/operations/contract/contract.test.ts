import { describe, expect, it } from "vitest";
import { ROUTES } from "../../../src/operations/contract/routes.ts";
import { type AnswerOf, CONTRACT } from "../../../src/operations/contract/table.ts";
import type { StoppedRun } from "../../../src/operations/runs.ts";
import { RUN_STATUSES } from "../../../src/run/model/result.ts";
import { openApi } from "../../../src/serve/api/routes.ts";
import type { Handlers } from "../../../src/serve/http/router.ts";
import { Description } from "../../serve/description.ts";

const all = Object.values(CONTRACT);

describe("the contract", () => {
  it("has each row of the routes once, with what is in its path", () => {
    expect(all.map(({ name }) => name).toSorted()).toEqual(Object.keys(ROUTES).toSorted());
    expect(new Set(all.map(({ method, path }) => `${method} ${path}`)).size).toBe(all.length);
    for (const one of all) {
      expect(CONTRACT[one.name]).toBe(one);
      const inPath = [...one.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      expect(Object.keys("params" in one ? one.params.shape : {})).toEqual(inPath);
    }
  });

  it("says of each operation what it answers with, in one of three ways", () => {
    const ways = all.map((one) => ["output", "events", "bytes"].filter((way) => way in one));
    expect(ways.filter((some) => some.length !== 1)).toEqual([]);
  });

  it("has a client give what is in the path, in the query and in the body as one object, so no name is in two of them", () => {
    for (const one of all) {
      if (one.name === "sessions.use") continue;
      const parts = ["params", "query", "body"].flatMap((part) => {
        const schema = part in one ? (one as Readonly<Record<string, unknown>>)[part] : {};
        return Object.keys((schema as { readonly shape?: object }).shape ?? {});
      });
      expect(new Set(parts).size, one.name).toBe(parts.length);
      if (one.method === "POST" && !("takesBytes" in one)) expect("query" in one, one.name).toBe(false);
      else expect("body" in one, one.name).toBe(false);
    }
  });

  it("is the same as the library's types where these say no more", () => {
    const stopped = (promised: AnswerOf<"runs.stop">): StoppedRun => promised;
    expect(stopped).toBeTypeOf("function");
  });

  it("knows each way in which a run ends", () => {
    const enums = JSON.stringify(openApi("1")).match(/(?<="enum":)\["succeeded"[^\]]*\]/g) ?? [];
    expect(enums.length).toBeGreaterThan(1);
    for (const known of enums) expect(JSON.parse(known)).toEqual(expect.arrayContaining([...RUN_STATUSES]));
  });
});

describe("a handler that does not keep its promise", () => {
  const right: Pick<Handlers<"projects" | "runs">, "projects.list" | "runs.stop"> = {
    "projects.list": async () => ({ projects: [{ name: "one" }] }),
    "runs.stop": async ({ params: { run } }) => ({ run, outcome: "ended", status: "failed" }),
  };

  it("does not compile", () => {
    const wrong: Partial<Handlers<"projects" | "runs">> = {
      ...right,
      // @ts-expect-error: the name is missing.
      "projects.list": async () => ({ projects: [{}] }),
      // @ts-expect-error: it is no outcome of the contract.
      "runs.stop": async ({ params: { run } }) => ({ run, outcome: "gone", status: "failed" }),
    };
    // @ts-expect-error: one is missing.
    const few: Handlers<"grants"> = {};
    const unknown: Handlers<"projects"> = {
      "projects.list": right["projects.list"],
      // @ts-expect-error: the contract has no such operation.
      "projects.remove": async () => ({}),
    };
    // @ts-expect-error: `name` is a text.
    const caller: AnswerOf<"host.caller"> = { name: 1, roles: [], version: "" };
    expect([wrong, few, unknown, caller]).toHaveLength(4);
  });
});

describe("the tests of the service", () => {
  it("refuse an answer with a member that is not described, unless it is said that others are there", () => {
    const description = new Description(openApi("0"));
    const reply = (json: unknown) => ({ status: 200, headers: { "content-type": "application/json" }, text: "", json });
    const worker = { name: "a", description: "", image: "b", model: null, policy: null, calls: [] };
    const list = (more: object) => reply({ workers: [{ ...worker, ...more }], problems: [] });
    const path = "/v1/projects/x/workers";
    expect(description.check("GET", path, list({}))).toBe("GET /v1/projects/{project}/workers");
    expect(() => description.check("GET", path, list({ file: "/home/u/a.worker" }))).toThrow("additional");
    const record = { seq: 1, at: "2030-01-01T00:00:00.000Z", type: "x", anything: 1 };
    expect(description.check("GET", "/v1/audit", reply({ records: [record], foreign: 0, next: null }))).toBe(
      "GET /v1/audit",
    );
  });
});
