import { z } from "zod";
import { CONSENTS } from "../../sandbox/approval.ts";

/** Who decides about an operation. Files written before 0.2 say `preApproved` for `pre_approved`; both are read. */
export const consent = z.preprocess((raw) => (raw === "preApproved" ? "pre_approved" : raw), z.enum(CONSENTS));
