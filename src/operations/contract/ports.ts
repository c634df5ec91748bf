import { z } from "zod";
import { answer, operation, runId } from "./operation.ts";

const portNumber = z
  .string()
  .regex(/^\d{1,5}$/, "a number")
  .transform(Number)
  .refine((port) => port >= 1 && port <= 65_535, "from 1 to 65535")
  .meta({ type: "integer", minimum: 1, maximum: 65_535, pattern: undefined });
const ofPort = z.strictObject({ session: runId, port: portNumber });

const sessionPort = answer({
  port: z.int(),
  name: z.string().nullable().describe("That the worker gives it"),
  isAllowed: z.boolean().describe("The worker declares it, or who opened the session named it"),
  isListening: z.boolean(),
  address: z.string().nullable().describe("At which it is shown to browsers of this machine; null: it is not"),
}).meta({ id: "SessionPort" });

const shownPort = answer({
  port: z.int(),
  url: z.string().describe("For a browser on the machine of the service: it works once, within two minutes"),
  address: z.string().describe("For programs on the machine of the service, with the header"),
  header: answer({ name: z.string(), value: z.string() }).meta({ id: "PortHeader" }),
}).meta({ id: "ShownPort" });

export const portOperations = {
  "ports.list": operation("ports.list", {
    summary: "List the ports of a session: those that can be connected to, and others that something listens on.",
    params: z.strictObject({ session: runId }),
    output: z.object({ ports: z.array(sessionPort) }),
    faults: [404, 503],
  }),
  "ports.show": operation("ports.show", {
    summary:
      "Show a port of a session, by HTTP and WebSockets, at an address of its own of the service's machine, until the session ends.",
    params: ofPort,
    output: shownPort,
    status: 201,
    faults: [404, 422, 503],
  }),
  "ports.connect": operation("ports.connect", {
    summary:
      "Connect to a port of a session. Needs `connection: upgrade` and `upgrade: corral-port`: after status 101, the connection is that to the port.",
    params: ofPort,
    isLasting: true,
    bytes: { contentType: "application/octet-stream", description: "Only with an upgrade" },
    faults: [404, 422, 503],
  }),
} as const;
