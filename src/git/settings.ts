import type { GitProtocol } from "../declarations/git/repo.ts";
import { SYSTEM_PATH } from "../secrets/read-secret.ts";

/** The whole environment of git: nothing is inherited, and its home is an empty directory of Corral's own. */
export function gitEnvironment(home: string, protocol: GitProtocol): Readonly<Record<string, string>> {
  return {
    PATH: SYSTEM_PATH,
    HOME: home,
    XDG_CONFIG_HOME: home,
    LC_ALL: "C",
    TZ: "UTC",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_SYSTEM: "/dev/null",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_ALLOW_PROTOCOL: protocol,
    GIT_OPTIONAL_LOCKS: "0",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_LITERAL_PATHSPECS: "1",
  };
}

/**
 * The settings of every git process. They override the configuration of any repository, so that no file can make git run a
 * program (hooks, a file system monitor, helpers, another ssh).
 */
export const GIT_SETTINGS: readonly string[] = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.attributesFile=/dev/null",
  "core.excludesFile=/dev/null",
  "core.sshCommand=ssh -oBatchMode=yes -oPermitLocalCommand=no -oClearAllForwardings=yes",
  "core.askPass=",
  "core.pager=cat",
  "core.protectHFS=true",
  "core.protectNTFS=true",
  "credential.helper=",
  "protocol.allow=never",
  "protocol.ext.allow=never",
  // A secret for one host must not be sent to another.
  "http.followRedirects=false",
  "http.lowSpeedLimit=1000",
  "http.lowSpeedTime=60",
  "fetch.recurseSubmodules=false",
  "push.recurseSubmodules=no",
  "submodule.recurse=false",
  "gc.autoDetach=false",
  "gc.pruneExpire=2.hours.ago",
  "maintenance.auto=false",
];

/** The remote end of a push to a path on this machine. It must not run programs of that repository's configuration either. */
export const LOCAL_RECEIVE_PACK = [
  "git",
  ...["hooksPath=/dev/null", "fsmonitor=false", "alternateRefsCommand=true"].map((one) => `-c core.${one}`),
  ...["autogc=false", "denyCurrentBranch=refuse"].map((one) => `-c receive.${one}`),
  "receive-pack",
].join(" ");
