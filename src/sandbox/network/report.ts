/** What a run did on its network. Bounded: at most 200 lines in each list, the most frequent first. */
export interface NetworkReport {
  readonly allowed: readonly AllowedTraffic[];
  readonly denied: readonly DeniedTraffic[];
  /** How many further hosts are in no line of these lists. */
  readonly unlisted: number;
}

export interface AllowedTraffic {
  /** `host:port`, as the rule or the request names it. */
  readonly to: string;
  readonly connections: number;
  /** Requests that Corral judged; 0 for a tunnel. */
  readonly requests: number;
  /** Bytes to the host. */
  readonly up: number;
  /** Bytes from the host. */
  readonly down: number;
}

export interface DeniedTraffic {
  readonly to: string;
  readonly count: number;
  readonly reason: NetworkRefusal;
  /** In words, with what is allowed instead. Without contents of requests. */
  readonly detail: string;
}

/** Why a connection or a request was refused. */
export type NetworkRefusal =
  | "host" // no rule allows the host and port
  | "method"
  | "path"
  | "address" // the name leads to an address that may not be dialled
  | "unresolved" // the name has no address
  | "unreachable" // no address answered, or its certificate was not accepted
  | "name" // SNI or Host names another host
  | "malformed" // not TLS, not HTTP, or ambiguous HTTP
  | "tls" // TLS to a host that Corral looks into
  | "digest" // a file differs from the lock file
  | "secret" // a secret is not available
  | "limit"; // a budget or a bound was reached
