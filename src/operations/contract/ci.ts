import { z } from "zod";
import { answer, count, inProject, operation, projectName, runId, time } from "./operation.ts";
import { MAX_WAIT_S } from "./runs.ts";

const ciId = z
  .string()
  .regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits")
  .describe("The id of a run of jobs");
const commit = z.string().min(1).max(200);
const inCi = z.strictObject({ ci: ciId });

const step = answer({
  name: z.string().describe("The name of its worker, and of its folder of results"),
  title: z.string(),
  kind: z.enum(["fetch", "part"]).describe("fetch: it runs nothing of the head"),
  needs: z.array(z.string()).describe("Names of steps"),
  status: z.string().nullable().describe("As of a run, or kept or skipped; null: it waits or runs"),
  run: runId.nullable().describe("Null: nothing ran, or not yet"),
  exitCode: z.int().nullable(),
  durationMs: z.number().nullable(),
  failedTests: z.int().nullable().describe("Of the reports of the head; null: it has none"),
}).meta({ id: "CiStep" });

const listed = {
  id: ciId,
  project: projectName,
  state: z.enum(["running", "succeeded", "failed", "stopped"]).describe("stopped: it ended before its jobs did"),
  base: z.string().nullable().describe("The commit whose ci.yaml counts; null: not found yet"),
  head: z.string().nullable().describe("The commit that is tested; null: not found yet"),
  isChanged: z.boolean().describe("The head has another ci.yaml, which is not obeyed"),
  startedAt: time,
  endedAt: time.nullable(),
  why: z.string().nullable().describe("Why it has stopped"),
};

export const ciOperations = {
  "ci.start": operation("ci.start", {
    summary:
      "Run the jobs of the base's ci.yaml on the files of the head, commits of the repository of a project. Each step is a run of the project.",
    body: z
      .strictObject({
        project: projectName.optional().describe("Absent: the only one"),
        head: commit.default("HEAD").describe("The commit that is tested"),
        base: commit.optional().describe("The commit whose ci.yaml counts; absent: HEAD. Needs the role admin"),
        jobs: z.array(z.string().max(100)).min(1).max(100).optional().describe("Absent: all"),
        matrix: z.record(z.string().max(100), z.string().max(100)).default({}).describe("Values of axes"),
      })
      .meta({ id: "CiOrder" }),
    status: 202,
    output: z.object({ ci: ciId }).meta({ id: "StartedCi" }),
    faults: [404, 415, 503],
  }),
  "ci.list": operation("ci.list", {
    summary: "List the runs of jobs that this service has, the newest first.",
    query: z.strictObject(inProject),
    output: z.object({ ci: z.array(answer(listed).meta({ id: "Ci" })) }),
    faults: [404],
  }),
  "ci.show": operation("ci.show", {
    summary: "Show a run of jobs with its steps, and wait for its end for `wait` seconds.",
    params: inCi,
    query: z.strictObject({ wait: count(0, MAX_WAIT_S).optional() }),
    isLasting: true,
    output: answer({ ...listed, steps: z.array(step) }).meta({ id: "ShownCi" }),
    faults: [404],
  }),
  "ci.file": operation("ci.file", {
    summary: "Send one file of the results of a run of jobs, such as ci.json or junit.xml.",
    params: inCi,
    query: z.strictObject({ path: z.string().min(1).max(4096).describe("A file, or STEP/reports/FILE") }),
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "The bytes of the file" },
    faults: [404],
  }),
  "ci.stop": operation("ci.stop", {
    summary: "Stop a run of jobs, and remove its results. The runs of its steps stay.",
    params: inCi,
    output: z.object({ id: ciId, outcome: z.literal("removed") }),
    faults: [404],
  }),
  "ci.explain": operation("ci.explain", {
    summary: "Show the workers that a job of the ci.yaml of HEAD becomes, and what it needs. Run nothing.",
    params: z.strictObject({ project: projectName, job: z.string().min(1).max(100) }),
    output: z
      .object({ workers: z.record(z.string(), z.string()).describe("Files, by name") })
      .meta({ id: "CiWorkers" }),
    faults: [404],
  }),
} as const;
