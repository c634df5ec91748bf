import type { IncomingMessage, ServerResponse } from "node:http";
import { inTraceOf, type Tracing } from "../../platform/tracing.ts";
import type { Log } from "../logging/log.ts";
import type { PageFiles } from "../page/page-files.ts";
import { checkMeant, type Foreign, type OwnNames } from "./admission.ts";
import { send, sendFault } from "./answer.ts";
import { faultOf, ServiceFault } from "./fault.ts";
import type { HidePaths } from "./host-paths.ts";
import { sendPage } from "./page.ts";
import type { Caller } from "./route.ts";
import type { Router } from "./router.ts";

/** Requests at once; more are refused, so that memory is bounded. */
const MAX_REQUESTS = 200;

export interface Handling {
  readonly router: Router;
  readonly page: PageFiles;
  readonly names: OwnNames;
  /** Of a request that was refused because of its `Host` or `Origin`. */
  readonly onForeign: (foreign: Foreign) => void;
  readonly log: Log;
  readonly tracing: Tracing | null;
  /** `route`: the pattern; empty if there is none, or if the request did not come so far. */
  readonly answered: (request: { method: string; route: string; status: number; ms: number }) => void;
  /** @throws ServiceFault */
  readonly authenticate: (request: IncomingMessage) => Promise<Caller>;
  /** For messages of errors. */
  readonly hide: HidePaths;
  /** The request came from a client with a valid token. */
  readonly known: (request: IncomingMessage) => void;
}

/** Answers requests. What is asked of one before anything of it is believed comes first, the cheapest first. */
export function requestHandler(handling: Handling): (request: IncomingMessage, response: ServerResponse) => void {
  let open = 0;
  return (request, response) => {
    const gone = new AbortController();
    const started = performance.now();
    open += 1;
    response.once("close", () => {
      open -= 1;
      gone.abort();
    });
    // A connection that breaks is no error of the service.
    response.on("error", () => {});
    request.on("error", () => {});
    const about = { method: request.method, route: "", caller: "" };
    const full = open > MAX_REQUESTS;
    handle(request, response, { handling, gone: gone.signal, about, full })
      .catch((error: unknown) => {
        const { isBug, body } = faultOf(error);
        if (isBug) handling.log.error({ ...about, ...whereOf(error) }, "unexpected error");
        else handling.log.debug({ ...about, code: body.code }, "refused");
        sendFault(response, error, handling.hide);
      })
      .finally(() => {
        const ms = Math.round(performance.now() - started);
        const status = response.statusCode;
        handling.answered({ method: request.method ?? "", route: String(about.route), status, ms });
        handling.log.debug({ ...about, status, ms }, "request");
      });
  };
}

async function handle(
  request: IncomingMessage,
  response: ServerResponse,
  {
    handling,
    gone,
    about,
    full,
  }: { handling: Handling; gone: AbortSignal; about: Record<string, unknown>; full: boolean },
): Promise<void> {
  const { router, page, names, authenticate, known } = handling;
  checkMeant(request, names, handling.onForeign);
  if (full) throw new ServiceFault(503, "TOO_MANY", `${MAX_REQUESTS} requests are being answered already`);
  const [path = "", query = "", more] = (request.url ?? "").split("?");
  if (more !== undefined) throw new ServiceFault(400, "WRONG_REQUEST", "the URL has two queries");
  const file = request.method === "GET" || request.method === "HEAD" ? page.get(path) : undefined;
  if (file !== undefined) return sendPage(request, response, file);
  const isPublic = request.method === "GET" && path === "/v1/health";
  const caller = isPublic ? NOBODY : await authenticate(request);
  about.caller = caller.name;
  if (!isPublic) known(request);
  const found = router.find(request.method ?? "", path);
  // The pattern, and not the path, which may have a key of an item.
  about.route = found.route.path;
  const act = () => router.run(found, new URLSearchParams(query), { caller, gone, request });
  await send(response, await inTraceOf(handling.tracing, request.headers, act));
}

const NOBODY: Caller = { name: "", roles: [], token: null };

/** Where a bug is, without its message, which may hold contents and paths. */
function whereOf(error: unknown): { readonly error: string; readonly at: readonly string[] } {
  const { name = "", stack = "" } = error instanceof Error ? error : {};
  const at = stack
    .split("\n")
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 5);
  return { error: name, at: at.map((line) => line.trim().replaceAll(/(?:file:\/\/)?\/\S*\//g, "")) };
}
