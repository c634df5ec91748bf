import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  type ElicitRequestFormParams,
  type Progress,
  type ServerContext,
} from "@modelcontextprotocol/server";

/** One request of a client, and what can be sent to the client until it is answered. */
export interface Exchange {
  /** Aborted when the client cancels the request, or is gone. */
  readonly signal: AbortSignal;
  /** Null if the client did not ask for it. */
  readonly progress: ((progress: Progress) => Promise<void>) | null;
  /** True if the client can show a form to a person. */
  readonly asks: boolean;
  /** Requests to the client. Null since the revision 2026-07-28: the answer says what is needed, and the client retries. */
  readonly push: Push | null;
  /** What the client sent with its retry. */
  readonly state: string | undefined;
  /** Settles when only a few answers are unread by the client: Corral holds each whole. Rejects with the signal's reason. */
  readonly whenRead: WhenRead;
  readonly responses: Readonly<Record<string, unknown>>;
}

export type WhenRead = (signal: AbortSignal) => Promise<void>;

export interface Push {
  elicit(form: ElicitRequestFormParams, signal: AbortSignal): Promise<unknown>;
  /** Null if the client does not offer roots. */
  readonly roots: ((signal: AbortSignal) => Promise<readonly string[]>) | null;
}

/** How long a client may take to send its roots. */
const ROOTS_MS = 10_000;
/** The project sets how long a form may be open; the signal ends it. */
const NO_TIME_LIMIT = 2 ** 31 - 1;

/** `initial`: what a client of the 2025 revisions declared once, for all its requests; null for a later revision. */
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

/** A client that declares no modes supports forms. */
function canShowForms(capabilities: ClientCapabilities | undefined): boolean {
  const elicitation = capabilities?.elicitation;
  if (elicitation === undefined) return false;
  return elicitation.form !== undefined || elicitation.url === undefined;
}

function pushThrough(mcpReq: ServerContext["mcpReq"], capabilities: ClientCapabilities | undefined): Push {
  const roots = async (signal: AbortSignal): Promise<readonly string[]> => {
    const listed = await mcpReq.send({ method: "roots/list" }, { signal, timeout: ROOTS_MS });
    return listed.roots.map(({ uri }) => uri);
  };
  return {
    elicit: (form, signal) => mcpReq.elicitInput(form, { signal, timeout: NO_TIME_LIMIT }),
    roots: capabilities?.roots === undefined ? null : roots,
  };
}
