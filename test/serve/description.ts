import type { IncomingHttpHeaders } from "node:http";
import { Ajv2020 } from "ajv/dist/2020.js";
import { z } from "zod";
import { CONTRACT } from "../../src/operations/contract/table.ts";

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Of a JSON answer. */
  // biome-ignore lint/suspicious/noExplicitAny: a test says by what it expects what the answer is.
  readonly json: any;
}

type Json = Readonly<Record<string, unknown>>;

/** What `/openapi.json` says, to hold answers against. */
export class Description {
  readonly #document: Json;
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false });

  constructor(document: Json) {
    this.#document = document;
    this.#ajv.addSchema(closed(document) as Json, "openapi");
  }

  get routes(): string[] {
    return Object.entries(this.#document.paths as Record<string, Json>).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
  }

  /** Throws if the answer is not described. Null for what is no route. */
  check(method: string, path: string, { status, headers, json }: Reply): string | null {
    const asked = path.split("?")[0] ?? "";
    const found = this.routes.find((route) => {
      const pattern = route
        .split(" ")[1]
        ?.replaceAll(".", "\\.")
        .replaceAll(/\{\w+\}/g, "[^/]+");
      return route.startsWith(`${method} `) && new RegExp(`^${pattern}$`).test(asked);
    });
    if (found === undefined) return null;
    const [, pattern = ""] = found.split(" ");
    const key = `${pattern.replaceAll("/", "~1")}/${method.toLowerCase()}/responses/${status}`;
    const operation = (this.#document.paths as Record<string, Record<string, Json>>)[pattern]?.[method.toLowerCase()];
    const responses = (operation?.responses ?? {}) as Record<string, { content?: Record<string, Json> }>;
    const described = responses[String(status)];
    if (described === undefined) throw new Error(`${found} answered ${status}, which is not described`);
    const type = (headers["content-type"] ?? "").split(";")[0] ?? "";
    if (described.content === undefined) return found;
    if (described.content[type] === undefined) throw new Error(`${found} answered ${status} as ${type}`);
    if (type !== "application/json") return found;
    const pointer = encodeURI(`openapi#/paths/${key}/content/application~1json/schema`)
      .replaceAll("%7B", "{")
      .replaceAll("%7D", "}");
    const validate = this.#ajv.getSchema(pointer) ?? this.#ajv.getSchema(encodeURI(pointer));
    if (validate === undefined) throw new Error(`there is no schema at ${pointer}`);
    if (!validate(json)) throw new Error(`${found} ${status}: ${this.#ajv.errorsText(validate.errors)}`);
    return found;
  }
}

/**
 * Objects of answers are open, since a later service may add members. Today's sends what it describes and nothing else, unless it says of an
 * object that only a part of it is described.
 */
function closed(schema: unknown): unknown {
  return JSON.parse(JSON.stringify(schema), (_, one: unknown) => {
    if (typeof one !== "object" || one === null || !("properties" in one) || "x-corral-in-part" in one) return one;
    const { additionalProperties: others } = one as { readonly additionalProperties?: unknown };
    const isOpen = typeof others === "object" && others !== null && Object.keys(others).length === 0;
    return isOpen ? { ...one, additionalProperties: false } : one;
  });
}

/** An event of a run, or of a fleet. */
export const isEvent = new Ajv2020({ strict: false, validateFormats: false }).compile(
  closed(
    z.toJSONSchema(z.union([CONTRACT["runs.events"].events, CONTRACT["fleets.events"].events]), { io: "output" }),
  ) as Json,
);
