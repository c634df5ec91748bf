import { z } from "zod";
import { fault, type Offered, type OtherContent } from "../../operations/contract/operation.ts";
import { type AnswerOf, CONTRACT } from "../../operations/contract/table.ts";

type Json = Readonly<Record<string, unknown>>;

/** Errors that every operation has: a wrong request, token, role or host, what is not there, a bug, and the end of the service. */
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
export function openApi(version: string): Json & AnswerOf<"host.openapi"> {
  const schemas = new Map<string, Json>();
  schemas.set("Fault", schemaIn(schemas)(fault, "output"));
  const paths: Record<string, Record<string, Json>> = {};
  for (const one of Object.values(CONTRACT)) {
    const path = paths[one.path] ?? {};
    paths[one.path] = path;
    path[one.method.toLowerCase()] = described(one, schemaIn(schemas));
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
      schemas: Object.fromEntries([...schemas].toSorted(([a], [b]) => (a < b ? -1 : 1))),
      securitySchemes: { token: { type: "http", scheme: "bearer" } },
    },
  };
}

function described(
  { method, path, role, summary, params, query, body, takesForm, takesBytes, faults = [], ...answer }: Offered,
  schemaOf: SchemaOf,
): Json {
  const statuses = [...new Set([...EVERYWHERE, ...faults])].toSorted((a, b) => a - b);
  const errors = statuses.map((status) => [status, { description: REASONS[status], content: FAULT }] as const);
  return {
    operationId: operationId(method, path),
    summary,
    ...(role === null ? { security: [] } : { security: [{ token: [] }], "x-corral-role": role }),
    parameters: [...parameters(params, "path", schemaOf), ...parameters(query, "query", schemaOf)],
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: contents(schemaOf(body, "input"), takesForm ?? false) } }),
    ...(takesBytes === undefined
      ? {}
      : {
          requestBody: {
            required: true,
            description: takesBytes.description,
            content: { [takesBytes.contentType]: { schema: { type: "string", format: "binary" } } },
          },
        }),
    responses: Object.fromEntries([...answersOf(answer, schemaOf), ...errors]),
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

const EVENTS: OtherContent = {
  contentType: "text/event-stream",
  description:
    "Server-sent events; data is JSON with the fields type and at. Send the id of the last one as Last-Event-ID to continue; 204: all were sent",
};

/** What is not an error, by its status. */
function answersOf(
  { status = 200, output, events, bytes }: Pick<Offered, "status" | "output" | "events" | "bytes">,
  schemaOf: SchemaOf,
): (readonly [number, Json])[] {
  const other = events === undefined ? bytes : EVENTS;
  if (output !== undefined) {
    const content = { "application/json": { schema: schemaOf(output, "output") } };
    return [[status, { description: REASONS[status], content }]];
  }
  const content = { [other?.contentType ?? ""]: { schema: { type: "string" } } };
  const whole = [status, { description: other?.description, content }] as const;
  return events === undefined ? [whole] : [whole, [204, { description: REASONS[204] }]];
}

function contents(schema: Json, takesForm: boolean): Json {
  const json = { "application/json": { schema } };
  if (!takesForm) return json;
  const form = { type: "object", properties: { request: schema }, required: ["request"] };
  return {
    ...json,
    "multipart/form-data": { schema: { ...form, additionalProperties: { type: "string", format: "binary" } } },
  };
}

function parameters(schema: z.ZodObject | undefined, place: "path" | "query", schemaOf: SchemaOf): Json[] {
  return Object.entries(schema?.shape ?? {}).map(([name, field]) => {
    const text = schemaOf(field as z.ZodType, "input");
    return {
      name,
      in: place,
      required: place === "path" || !(field as z.ZodType).safeParse(undefined).success,
      schema: text,
    };
  });
}

type SchemaOf = (schema: z.ZodType, io: "input" | "output") => Json;

/** Schemas that have a name go to `named`, once, and are pointed to: a generated client has one type for each. */
function schemaIn(named: Map<string, Json>): SchemaOf {
  return (schema, io) => {
    const made = z.toJSONSchema(schema, { io, unrepresentable: "any" });
    const text = JSON.stringify(made).replaceAll('"#/$defs/', '"#/components/schemas/');
    const { $schema: _, $defs = {}, ...rest } = JSON.parse(text) as Json & { readonly $defs?: Record<string, Json> };
    for (const [name, one] of Object.entries($defs)) {
      const known = named.get(name);
      if (known !== undefined && JSON.stringify(known) !== JSON.stringify(one))
        throw new Error(`two schemas have the name ${name}`);
      named.set(name, one);
    }
    return rest;
  };
}
