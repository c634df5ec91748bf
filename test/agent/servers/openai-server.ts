import { chatCompletions } from "./chat-completions.ts";
import { type Behaviours, type ModelServer, startModelServer } from "./model-server.ts";
import { responses } from "./responses.ts";

/** Plays OpenAI: chat completions and responses at one address, with one row of behaviours for both. */
export function openAiServer(behaviours: Behaviours): Promise<ModelServer> {
  return startModelServer([chatCompletions, responses], behaviours);
}
