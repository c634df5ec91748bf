import type { BrokerService } from "../../run/cell/broker.ts";
import { newRunId } from "../../run/model/job.ts";
import { unstartedResult } from "../../run/model/refusal.ts";

const MESSAGE =
  "This container serves many items one after another: it makes no calls and has no tools. Use `reuse: fresh`.";

/** What the socket of a serving cell answers: who asks there would not be told from the item before. */
export const UNSERVED: BrokerService = {
  call: async ({ worker }) =>
    unstartedResult({ run: newRunId(), worker }, "refused", { code: "NOT_SERVED", message: MESSAGE }),
  tool: async () => ({ ok: false, code: "NOT_SERVED", message: MESSAGE, data: {} }),
  access: async () => ({ granted: false, code: "NOT_SERVED", message: MESSAGE }),
  sandbox: () => ({}),
};
