import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  type ElicitRequestFormParams,
  type Progress,
  type ServerContext,
} from "@modelcontextprotocol/server";

/** One request of a client, and what can be said to the client while it is not answered. */
export interface Exchange {
  /** Aborted when the client cancels the request, or is gone. */
  readonly signal: AbortSignal;
  /** Null where the client did not ask for it. */
  readonly progress: ((progress: Progress) => Promise<void>) | null;
  /** True where the client can put a form before a person. */
  readonly asks: boolean;
  /** Requests to the client. Null since the revision 2026-07-28: there the answer says what is wanted, and the client comes again. */
  readonly push: Push | null;
  /** What the client came again with. */
  readonly state: string | undefined;
  /** Settles when no more answers than a few wait for the client to read them: each is held whole until then. Rejects with its reason. */
  readonly whenRead: WhenRead;
  readonly responses: Readonly<Record<string, unknown>>;
}

export type WhenRead = (signal: AbortSignal) => Promise<void>;

export interface Push {
  elicit(form: ElicitRequestFormParams, signal: AbortSignal): Promise<unknown>;
  /** Null where the client has none to tell. */
  readonly roots: ((signal: AbortSignal) => Promise<readonly string[]>) | null;
}

/** How long a client may take to say its roots. */
const ROOTS_MS = 10_000;
/** How long a form may be open is the project's to say; the signal ends it. */
const NO_TIME_LIMIT = 2 ** 31 - 1;

/** `initial`: what a client of the 2025 revisions said of itself once, for all of its requests; null for a later one. */
export function exchangeOf(
  { mcpReq }: ServerContext,
  initial: ClientCapabilities | undefined | null,
  whenRead: WhenRead,
): Exchange {
  const envelope: Readonly<Record<string, unknown>> = { ...mcpReq.envelope };
  const capabilities =
    initial === null ? (envelope[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined) : initial;
  const token = mcpReq._meta?.progressToken;
  return {
    signal: mcpReq.signal,
    progress:
      token === undefined
        ? null
        : (progress) =>
            mcpReq.notify({ method: "notifications/progress", params: { ...progress, progressToken: token } }),
    asks: canShowForms(capabilities),
    push: initial === null ? null : pushThrough(mcpReq, capabilities),
    state: mcpReq.requestState<string>(),
    whenRead,
    responses: mcpReq.inputResponses ?? {},
  };
}

/** A client that says nothing of modes means forms. */
function canShowForms(capabilities: ClientCapabilities | undefined): boolean {
  const elicitation = capabilities?.elicitation;
  if (elicitation === undefined) return false;
  return elicitation.form !== undefined || elicitation.url === undefined;
}

function pushThrough(mcpReq: ServerContext["mcpReq"], capabilities: ClientCapabilities | undefined): Push {
  const roots = async (signal: AbortSignal): Promise<readonly string[]> => {
    const told = await mcpReq.send({ method: "roots/list" }, { signal, timeout: ROOTS_MS });
    return told.roots.map(({ uri }) => uri);
  };
  return {
    elicit: (form, signal) => mcpReq.elicitInput(form, { signal, timeout: NO_TIME_LIMIT }),
    roots: capabilities?.roots === undefined ? null : roots,
  };
}
