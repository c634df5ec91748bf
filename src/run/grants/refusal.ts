import type { Mode } from "../model/grant.ts";

/** Why a directory or a host is not granted. No person is asked then. */
export type GrantRefusalCode =
  | "GRANT_NOT_DYNAMIC"
  | "GRANT_LIMITED_CALL"
  | "GRANT_LIMITED_COMMAND"
  | "GRANT_READONLY"
  | "GRANT_OUTSIDE"
  | "GRANT_NOT_ABOVE"
  | "GRANT_LIMIT"
  | "GRANT_RESERVED"
  | "GRANT_SOURCE_REFUSED"
  | "GRANT_BLOCKED"
  | "GRANT_NO_DIRECTORY"
  | "GRANT_NO_HOST"
  | "GRANT_REVOKED"
  | "GRANT_FOR_ONE_OPERATION"
  | "APPROVAL_DENIED"
  | "APPROVAL_TIMED_OUT";

/** The text is for an LLM: virtual paths only, what failed, why, and what can be done instead. */
export interface GrantRefusal {
  readonly code: GrantRefusalCode;
  readonly message: string;
  /** The reason in it, for people. */
  readonly because: string;
}

export type Refused = { readonly ok: false; readonly refusal: GrantRefusal };

/** `because` and `instead` are whole sentences; the directory is as the worker would know it. */
export function refuse(
  code: GrantRefusalCode,
  asked: { readonly directory: string; readonly mode: Mode },
  because: string,
  instead = "Work with the directories that you have.",
): Refused {
  const what = asked.mode === "write" ? "Writing to" : "Reading";
  return {
    ok: false,
    refusal: { code, because, message: `${what} '${asked.directory}' was not granted. ${because} ${instead}` },
  };
}

/** The same for a host of the network. */
export function refuseHost(
  code: GrantRefusalCode,
  to: string,
  because: string,
  instead = "Work with the hosts that you have.",
): Refused {
  return { ok: false, refusal: { code, because, message: `Reaching '${to}' was not granted. ${because} ${instead}` } };
}
