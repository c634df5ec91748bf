import type { IncomingMessage } from "node:http";

/** A request that a server was sent: Node leaves these open for what a client is answered with. */
export type HttpRequest = IncomingMessage & { readonly method: string; readonly url: string };
