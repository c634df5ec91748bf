import { userInfo } from "node:os";

/** The name of the user of this process, for people; its number, if the machine does not know a name. */
export function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${process.geteuid?.() ?? "unknown"}`;
  }
}
