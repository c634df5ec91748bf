import { z } from "zod";

/* What `corral explain` answers with. It has more fields: those that are named here stay. */

const mount = z
  .looseObject({
    path: z.string(),
    mode: z.enum(["ro", "rw"]),
    suffixes: z.array(z.string()).optional().describe("Only such files; absent: all"),
    maxFileBytes: z.number().optional(),
    approval: z.looseObject({ write: z.string(), delete: z.string() }).optional(),
    stage: z.literal(true).optional().describe("What is written waits as a changeset"),
    discard: z.literal(true).optional().describe("What is written is dropped"),
  })
  .meta({ id: "Mount" });

const network = z
  .union([
    z.boolean(),
    z.looseObject({
      allow: z.array(z.looseObject({ to: z.string(), methods: z.array(z.string()).optional() })),
    }),
  ])
  .describe("true: every host; false: none");

const narrowing = z
  .looseObject({
    by: z.string(),
    kind: z.string(),
    path: z.string().optional(),
    limit: z.string().optional(),
    from: z.unknown().optional(),
    to: z.unknown().optional(),
  })
  .meta({ id: "Narrowing" })
  .describe("What was taken away, and by whom");

const sandbox = z
  .looseObject({
    mounts: z.array(mount),
    withheld: z.array(mount).optional().describe("Shown only after an approval"),
    network,
    secrets: z.array(z.string()).optional(),
    limits: z.record(z.string(), z.number()),
    policy: z.looseObject({ name: z.string(), description: z.string().optional() }),
  })
  .meta({ id: "ExplainedSandbox" });

const explainedRun = z
  .looseObject({
    worker: z.string(),
    path: z.array(z.string()).describe("From the worker that is run to this one"),
    sandbox: sandbox.nullable(),
    narrowings: z.array(narrowing),
    plan: z.looseObject({ image: z.looseObject({ name: z.string() }) }).nullable(),
    refused: z
      .array(z.looseObject({ code: z.string(), message: z.string() }))
      .nullable()
      .describe("Null: it would run"),
    agent: z.looseObject({ model: z.string(), tools: z.array(z.string()) }).nullable(),
    notes: z.array(z.string()),
    calls: z.array(z.lazy((): z.ZodType => explainedRun)),
  })
  .meta({ id: "ExplainedRun" });

export const explanation = z
  .looseObject({ worker: z.string(), tree: explainedRun, notes: z.array(z.string()) })
  .meta({ id: "Explanation" });
