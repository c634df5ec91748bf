import { z } from "zod";

/** `queue` of `corral.yaml`: where the fleets of this project are, if they are not on this machine. */
export const queueYaml = z.string().refine(isQueueUrl, {
  error:
    "must be `postgres://user@host:port/database`, without a password: put one into CORRAL_QUEUE or a .pgpass file",
});

function isQueueUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, password } = new URL(text);
  return /^postgres(ql)?:$/.test(protocol) && password === "";
}
