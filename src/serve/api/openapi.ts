import { z } from "zod";
import type { OtherContent, Route } from "../http/route.ts";
import { fault } from "./shapes.ts";

type Json = Readonly<Record<string, unknown>>;

/** Errors that every route has: a wrong request, token, role or host, what is not there, a bug, and the end of the service. */
const EVERYWHERE = [400, 401, 403, 404, 500, 503] as const;

const REASONS: Readonly<Record<number, string>> = {
  200: "Done",
  201: "Made",
  202: "Begun",
  204: "Nothing follows",
  400: "The request is wrong",
  401: "No token, or a wrong one",
  403: "The token lacks the role, or the request was not meant for this service",
  404: "There is no such thing",
  409: "It is not in the state for this",
  413: "The body is too large",
  415: "The body has another type",
  422: "The project refuses it; the violations say why",
  500: "An error of Corral",
  503: "The Engine, or a place, is missing; or the service is being stopped",
};

/** The description of the service, OpenAPI 3.1, made from the schemas that check requests. */
export function openApi(routes: readonly Route[], version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const one of routes) {
    const path = paths[one.path] ?? {};
    paths[one.path] = path;
    path[one.method.toLowerCase()] = operation(one);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Corral",
      version,
      description: "Untrusted work in containers that see only what they were granted.",
    },
    paths,
    components: {
      schemas: { Fault: jsonSchema(fault, "output") },
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
    },
  };
}

function operation({ method, path, role, summary, params, query, body, takesForm, answers, faults = [] }: Route): Json {
  const statuses = [...new Set([...EVERYWHERE, ...faults])].toSorted((a, b) => a - b);
  const errors = statuses.map((status) => [status, { description: REASONS[status], content: FAULT }] as const);
  const good = Object.entries(answers).map(([status, answer]) => [status, described(Number(status), answer)] as const);
  return {
    operationId: operationId(method, path),
    summary,
    ...(role === null ? { security: [] } : { security: [{ token: [] }], "x-corral-role": role }),
    parameters: [...parameters(params, "path"), ...parameters(query, "query")],
    ...(body === undefined ? {} : { requestBody: { required: true, content: contents(body, takesForm ?? false) } }),
    responses: Object.fromEntries([...good, ...errors]),
  };
}

const FAULT = { "application/json": { schema: { $ref: "#/components/schemas/Fault" } } };

function operationId(method: string, path: string): string {
  const words = path
    .replace("/v1/", "")
    .split(/[/{}.]+/)
    .filter((word) => word !== "");
  return [method.toLowerCase(), ...words].join("_");
}

function described(status: number, answer: z.ZodType | OtherContent | null): Json {
  const description = REASONS[status] ?? "";
  if (answer === null) return { description };
  if ("contentType" in answer)
    return { description: answer.description, content: { [answer.contentType]: { schema: { type: "string" } } } };
  return { description, content: { "application/json": { schema: jsonSchema(answer, "output") } } };
}

function contents(body: z.ZodType, takesForm: boolean): Json {
  const schema = jsonSchema(body, "input");
  const json = { "application/json": { schema } };
  if (!takesForm) return json;
  const form = { type: "object", properties: { request: schema }, required: ["request"] };
  return {
    ...json,
    "multipart/form-data": { schema: { ...form, additionalProperties: { type: "string", format: "binary" } } },
  };
}

function parameters(schema: z.ZodObject | undefined, place: "path" | "query"): Json[] {
  return Object.entries(schema?.shape ?? {}).map(([name, field]) => {
    const text = jsonSchema(field as z.ZodType, "input");
    return {
      name,
      in: place,
      required: place === "path" || !(field as z.ZodType).safeParse(undefined).success,
      schema: text,
    };
  });
}

function jsonSchema(schema: z.ZodType, io: "input" | "output"): Json {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: "any" });
  return rest;
}
