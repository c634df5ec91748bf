import { messages } from "./messages.ts";
import { type Behaviours, type ModelServer, startModelServer } from "./model-server.ts";

/** Plays Anthropic. */
export function anthropicServer(behaviours: Behaviours): Promise<ModelServer> {
  return startModelServer([messages], behaviours);
}
