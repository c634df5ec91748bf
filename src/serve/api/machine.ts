import { z } from "zod";
import { examineMachine } from "../../operations/machine.ts";
import { withoutHostPaths } from "../http/host-paths.ts";
import { type Route, route } from "../http/route.ts";
import { permits } from "../http/router.ts";
import type { Served } from "./service.ts";

const finding = z
  .looseObject({
    what: z.string(),
    state: z.enum(["ok", "warning", "missing"]),
    detail: z.string(),
  })
  .meta({ id: "Finding" });

export function machineRoutes(
  { stateDir }: Pick<Served, "stateDir">,
  engineEnv: Readonly<Record<string, string | undefined>>,
): Route[] {
  let looking: ReturnType<typeof examineMachine> | null = null;
  /** It starts programs and takes long: all that ask meanwhile get the same answer. */
  const look = (): ReturnType<typeof examineMachine> => {
    looking ??= examineMachine({ stateDir, engineEnv }).finally(() => {
      looking = null;
    });
    return looking;
  };
  return [
    route(
      {
        method: "GET",
        path: "/v1/machine",
        role: "read",
        summary: "Examine this machine as `corral doctor` does. Only the role admin is shown paths of the host.",
        answers: { 200: z.object({ ok: z.boolean(), findings: z.array(finding) }).meta({ id: "Machine" }) },
      },
      async ({ caller }) => {
        const { ok, findings } = await look();
        const shown = permits(caller, "admin")
          ? findings
          : findings.map((one) => ({ ...one, detail: withoutHostPaths(one.detail, stateDir) }));
        return { status: 200, json: { ok, findings: shown } };
      },
    ),
  ];
}
