import { z } from "zod";
import { ROLES } from "../../state/service/tokens.ts";
import { type Route, route } from "../http/route.ts";

/** Who asks: a client offers only what its token may do. */
export function callerRoutes(version: string): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/caller",
        role: "read",
        summary: "Say which token asks, what it may do, and which version answers.",
        answers: {
          200: z
            .object({ name: z.string(), roles: z.array(z.enum(ROLES)), version: z.string() })
            .meta({ id: "Caller" }),
        },
      },
      async ({ caller: { name, roles } }) => ({ status: 200, json: { name, roles, version } }),
    ),
  ];
}
