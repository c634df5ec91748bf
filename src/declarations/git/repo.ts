import { z } from "zod";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { SecretSource } from "../../secrets/read-secret.ts";
import { named, repositoryNameFault, secretSource } from "../terms/names.ts";
import { virtualPath } from "../terms/terms.ts";
import { map, namedMap } from "../yaml/shape.ts";

const MAX_REPOSITORIES = 100;

const url = named((raw) => {
  const parsed = parseGitUrl(raw);
  return parsed.ok ? null : parsed.fault;
});

/** Text that becomes one line of a commit's head. */
const headline = z
  .string()
  .trim()
  .min(1)
  .max(200)
  .regex(/^[^<>\p{Cc}\p{Cs}]*$/u, "must not contain `<`, `>` or control characters");

const repository = map({
  url,
  branch: named(branchFault).default("main"),
  at: virtualPath,
  credentials: secretSource.optional(),
  author: map({ name: headline, email: headline }).optional(),
});

/** The section `git` of `corral.yaml`: repositories that outlive the sandbox. */
export const git = map({ repos: namedMap(repository, repositoryNameFault, MAX_REPOSITORIES) });

export type GitYaml = z.output<typeof git>;

/** Narrower than `git check-ref-format`: what it refuses is refused here as well. */
function branchFault(name: string): string | null {
  const sound =
    /^[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}$/.test(name) &&
    !name.includes("..") &&
    name.split("/").every((part) => part !== "" && !/^\.|\.$|\.lock$/.test(part));
  return sound ? null : "must be the name of a branch such as `main` or `release/1.0`";
}

/** How a repository is spoken to; anything else is refused, `ext::` and its kind above all. */
export type GitProtocol = "https" | "http" | "ssh" | "file";

/** A repository in which workers may keep files; only Corral speaks to it. */
export interface GitRepo {
  readonly name: string;
  /** As git is given it; without a secret. */
  readonly url: string;
  readonly protocol: GitProtocol;
  readonly branch: string;
  /** The virtual directory that mirrors the repository's root. */
  readonly at: VirtualPath;
  /** Null: none are needed, or `ssh` has its own. */
  readonly credentials: SecretSource | null;
  /** Of the commits; null: the worker. */
  readonly author: { readonly name: string; readonly email: string } | null;
}

export type GitUrl =
  | { readonly ok: true; readonly protocol: GitProtocol; readonly url: string }
  /** `fault` follows the name of the value. */
  | { readonly ok: false; readonly fault: string };

const EXPECTED =
  "must be a `https://…` or `ssh://git@host/…` address, or the absolute path of a repository on this machine";
const MAX_CHARACTERS = 2000;

/**
 * The address of a repository, in the one form that git gets. It contains no secret, since git's errors and
 * files repeat it. Plain `http` is only for this machine itself.
 */
export function parseGitUrl(raw: string): GitUrl {
  if (raw.length > MAX_CHARACTERS) return { ok: false, fault: "is too long" };
  if (/[\p{Cc}\p{Cs}\s\\"'`]/u.test(raw))
    return { ok: false, fault: "must not contain spaces, quotes or control characters" };
  if (raw.startsWith("/")) return fileUrl(raw);
  if (raw.startsWith("file:///")) return fileUrl(raw.slice("file://".length));
  if (/^[\w.-]+@[\w.-]+:(?!\/\/)/.test(raw))
    return { ok: false, fault: `must be a complete address; write ssh://${raw.replace(":", "/")}` };
  const scheme = /^(https|http|ssh|git\+ssh):\/\//.exec(raw)?.[1];
  if (scheme === undefined || !URL.canParse(raw)) return { ok: false, fault: EXPECTED };
  return remoteUrl(raw, scheme);
}

function remoteUrl(raw: string, scheme: string): GitUrl {
  const { hostname, username, password, pathname, search, hash, port } = new URL(raw);
  if (password !== "") return { ok: false, fault: "must not contain a password; use `credentials`" };
  if (search !== "" || hash !== "") return { ok: false, fault: "must not contain `?` or `#`" };
  if (!/^(\[[0-9a-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*)$/i.test(hostname)) return { ok: false, fault: EXPECTED };
  if (!/^[\w.@+~-]*$/.test(username) || username.startsWith("-"))
    return {
      ok: false,
      fault: "has a user name with characters other than letters, digits and `.`, `_`, `-`, `+`, `@`",
    };
  if (pathname.length < 2) return { ok: false, fault: "names a host but no repository" };
  if (pathname.startsWith("/-")) return { ok: false, fault: "must not begin with `-` after the host" };
  if (scheme === "http" && !["localhost", "127.0.0.1", "[::1]"].includes(hostname))
    return { ok: false, fault: "must use https: what goes over plain http can be read and changed on the way" };
  const protocol = scheme === "git+ssh" ? "ssh" : (scheme as GitProtocol);
  const user = username === "" ? "" : `${username}@`;
  return { ok: true, protocol, url: `${protocol}://${user}${hostname}${port === "" ? "" : `:${port}`}${pathname}` };
}

function fileUrl(path: string): GitUrl {
  const parts = path.split("/").slice(1);
  if (parts.some((part) => part === "" || part === "." || part === ".."))
    return { ok: false, fault: "must be a plain absolute path, without `.`, `..` and doubled slashes" };
  return { ok: true, protocol: "file", url: path };
}
