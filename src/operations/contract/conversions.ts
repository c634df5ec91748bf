import { z } from "zod";
import { DPI, OCR_LANGUAGES, TARGETS } from "../convert/layout.ts";
import { answer, count, operation, time } from "./operation.ts";
import { MAX_WAIT_S } from "./runs.ts";

const MAX_ORDER_BYTES = 1024 ** 2;

export const conversionId = z
  .string()
  .regex(/^[0-9a-f]{12}$/, "12 hexadecimal digits")
  .describe("The id of a conversion");

/** The part `request` of the form that starts a conversion. */
const order = z
  .strictObject({
    to: z.enum(TARGETS).describe("What to make of each file"),
    ocr: z
      .string()
      .regex(OCR_LANGUAGES, "languages of tesseract, such as eng or eng+deu")
      .optional()
      .describe("Read pictures too, in this language"),
    dpi: z.int().min(DPI.least).max(DPI.most).optional().describe("Pixels an inch"),
    passwords: z
      .array(
        z
          .string()
          .min(1)
          .max(500)
          .regex(/^[^\r\n]*$/, "must be one line"),
      )
      .max(100)
      .optional()
      .describe("Tried for what is encrypted; each container gets all"),
    timeoutMs: z.int().min(1000).max(999_999_999).optional().describe("Of one file; absent: grows with its size"),
    memoryBytes: z.int().min(1).max(1e12).optional().describe("As timeoutMs"),
    diskBytes: z.int().min(1).max(1e12).optional().describe("As timeoutMs"),
  })
  .meta({ id: "ConversionOrder" });

const listed = {
  id: conversionId,
  to: z.enum(TARGETS),
  state: z.enum(["running", "done", "stopped"]).describe("stopped: it ended before its files were converted"),
  startedAt: time,
  endedAt: time.nullable(),
  why: z.string().nullable().describe("Why it has stopped"),
  counts: answer({
    total: z.int(),
    done: z.int(),
    notPossible: z.int(),
    refused: z.int(),
  })
    .meta({ id: "ConversionCounts" })
    .describe("Of its files; what is in none of the others waits or runs"),
};

const file = answer({
  file: z.string().describe("Its name, as it was sent"),
  folder: z.string().describe("The folder of its results"),
  verdict: z.enum(["done", "not possible", "refused"]).nullable().describe("Null: it waits or runs"),
  reason: z.string().nullable().describe("encrypted, damaged, unknown type, bomb, timed out, …"),
  words: z.string().nullable(),
  type: z.string().nullable(),
  files: z.array(z.string()).describe("What is in the folder, at most 100: `path` of conversions.file is FOLDER/FILE"),
  pages: z.int().nullable(),
  notes: z.array(z.string()),
  durationMs: z.number(),
  memoryBytesPeak: z.number().nullable(),
})
  .meta({ id: "ConvertedFile" })
  .describe("All but `file`, `folder` and `files` is the word of the container that read the file");

const conversion = answer(listed).meta({ id: "Conversion" });
const shown = answer({ ...listed, files: z.array(file) }).meta({ id: "ShownConversion" });
const inConversion = z.strictObject({ conversion: conversionId });

export const conversionOperations = {
  "conversions.start": operation("conversions.start", {
    summary:
      "Convert files, each in a container of its own: they come as the files of a form, whose part `request` is the JSON. They and their results stay for a day, or until the service ends.",
    body: order,
    maxBodyBytes: MAX_ORDER_BYTES,
    takesForm: true,
    status: 202,
    output: z.object({ conversion: conversionId }).meta({ id: "StartedConversion" }),
    faults: [413, 415, 422, 503],
  }),
  "conversions.list": operation("conversions.list", {
    summary: "List conversions, the newest first.",
    output: z.object({ conversions: z.array(conversion) }),
  }),
  "conversions.show": operation("conversions.show", {
    summary: "Show a conversion with what became of each file, and wait for its end for `wait` seconds.",
    params: inConversion,
    query: z.strictObject({ wait: count(0, MAX_WAIT_S).optional() }),
    isLasting: true,
    output: shown,
    faults: [404],
  }),
  "conversions.file": operation("conversions.file", {
    summary: "Send one file of the results, to be saved and never shown as what it is.",
    params: inConversion,
    query: z.strictObject({ path: z.string().min(1).max(4096).describe("FOLDER/FILE, or report.html") }),
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "The bytes of the file" },
    faults: [404],
  }),
  "conversions.files": operation("conversions.files", {
    summary: "Send all results as a tar archive, without links: a folder for each file, report.html and results.jsonl.",
    params: inConversion,
    isLasting: true,
    bytes: { contentType: "application/x-tar", description: "Regular files and directories" },
    faults: [404],
  }),
  "conversions.remove": operation("conversions.remove", {
    summary: "Stop a conversion, and remove its files and results.",
    params: inConversion,
    output: z.object({ id: conversionId, outcome: z.literal("removed") }),
    faults: [404],
  }),
} as const;
