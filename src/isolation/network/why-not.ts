import { runSystemProgram } from "../../files/host/system-program.ts";

/** Why no cell of this machine can have an allow list, for people; null if they can. */
export async function whyNoAllowLists(uid: number): Promise<string | null> {
  if (uid !== 0) return "Corral does not run as root";
  if (!(await runSystemProgram("nsenter", ["--version"]))) return "the program nsenter of util-linux is not installed";
  return null;
}
