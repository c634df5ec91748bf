import { z } from "zod";

/** `queue` of `corral.yaml`: where the fleets of this project are, if they are not on this machine. */
export const queueYaml = z.string().refine(isQueueUrl, {
  error:
    "must be `postgres://user@host:port/database`, without a password: put one, or `?passwordfile=FILE`, into CORRAL_QUEUE, or use a .pgpass file",
});

function isQueueUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, password, searchParams } = new URL(text);
  // A project that was cloned would send any file of its user to any server.
  return /^postgres(ql)?:$/.test(protocol) && password === "" && !searchParams.has("passwordfile");
}
