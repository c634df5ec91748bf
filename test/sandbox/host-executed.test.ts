import { describe, expect, it } from "vitest";
import { deliveryOf } from "../../src/sandbox/expand.ts";
import { isHostExecutedRoot, whyHostExecuted } from "../../src/sandbox/host-executed.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";

const NAMES = ["git on this machine would run what this names", "git on this machine would run this"] as const;
const [CONFIG, HOOK] = NAMES;
const ELSEWHERE = "git on this machine would take its configuration from where this leads";

describe("what programs of the host execute", () => {
  it.each([
    ["/repo/.git/config", CONFIG],
    ["/repo/.git/config.worktree", CONFIG],
    ["/repo/.git/hooks/pre-commit", HOOK],
    ["/repo/.git/commondir", ELSEWHERE],
    ["/repo/.git/modules/lib/config", CONFIG],
    ["/repo/.git/modules/lib/deep/hooks/post-checkout", HOOK],
    ["/repo/.git/worktrees/one/config.worktree", CONFIG],
    ["/repo/.git/worktrees/one/commondir", ELSEWHERE],
    ["/repo/.git/objects/info/alternates", ELSEWHERE],
    ["/repo/.git", ELSEWHERE],
    ["/srv/bare.git/config", CONFIG],
    ["/srv/bare.git/hooks/update", HOOK],
    ["/repo/deep/below/.git/config", CONFIG],
    ["/repo/.GIT/Config", CONFIG],
    ["/repo/.g\u200cit/config", CONFIG],
    ["/repo/GIT~1/config", CONFIG],
    ["/repo/.git ./config", CONFIG],
    ["/repo/.gitmodules", CONFIG],
    ["/repo/.husky/pre-push", HOOK],
    ["/repo/.pre-commit-config.yaml", HOOK],
    ["/repo/.vscode/tasks.json", "an editor on this machine would run what this names"],
    ["/repo/a.code-workspace", "an editor on this machine would run what this names"],
    ["/repo/.devcontainer/devcontainer.json", "an editor or a service would build and start a container as this says"],
    ["/repo/.mcp.json", "an agent on this machine would run what this names"],
    ["/repo/.claude/settings.json", "an agent on this machine would run what this names"],
    ["/repo/.envrc", "a shell on this machine would run this"],
    ["/home/me/.config/fish/config.fish", "a shell on this machine would run this"],
    ["/repo/mise.local.toml", "a version manager on this machine would run what this names"],
    ["/repo/.npmrc", "a package manager on this machine would run what this names"],
    ["/repo/.github/workflows/ci.yml", "a CI service would run this after a push"],
    ["/repo/Jenkinsfile", "a CI service would run this after a push"],
  ])("%s: %s", (path, why) => {
    expect(whyHostExecuted(path, "file")).toBe(why);
  });

  it.each([
    "/repo/.git/index",
    "/repo/.git/HEAD",
    "/repo/.git/COMMIT_EDITMSG",
    "/repo/.git/objects/ab/cdef",
    "/repo/.git/refs/heads/hooks",
    "/repo/.git/refs/heads/config",
    "/repo/.git/logs/HEAD",
    "/repo/.git/info/exclude",
    "/repo/.gitattributes",
    "/repo/.gitignore",
    "/repo/.editorconfig",
    "/repo/.env",
    "/repo/AGENTS.md",
    "/repo/Makefile",
    "/repo/package.json",
    "/repo/src/hooks/use-state.ts",
    "/repo/src/config",
    "/repo/.github/CODEOWNERS",
    "/repo/.config/other/a",
    "/repo/code-workspace",
    "/repo/my.github/workflows",
    "/home/me/.claude/worktrees/one/src/a.ts",
    // A star in the table stands for what may be there; in a name it is a character.
    "/repo/*",
    "/repo/*/a",
  ])("%s: nothing does", (path) => {
    expect(whyHostExecuted(path, "file")).toBeNull();
  });

  it("a file HEAD makes any directory a repository, whose configuration git runs", () => {
    expect(whyHostExecuted("/repo/fixture/HEAD", "file")).toMatch(/^with this its directory is a repository/);
    expect(whyHostExecuted("/repo/fixture/HEAD", "directory")).toBeNull();
  });

  it("an agent's own work trees are judged as work trees", () => {
    expect(whyHostExecuted("/home/me/.claude/worktrees/one/.git", "file")).toBe(ELSEWHERE);
    expect(whyHostExecuted("/home/me/.claude/worktrees/one/.vscode/a", "file")).not.toBeNull();
    expect(whyHostExecuted("/home/me/.claude/settings.json", "file")).not.toBeNull();
  });

  it("a directory alone runs nothing, and a link in its place brings all that is behind it", () => {
    for (const path of ["/repo/.vscode", "/repo/.git", "/repo/.git/hooks", "/repo/.github/workflows"])
      expect(whyHostExecuted(path, "directory"), path).toBeNull();
    for (const path of ["/repo/.vscode", "/repo/.git", "/repo/.git/hooks", "/repo/.git/modules", "/repo/.github"])
      expect(whyHostExecuted(path, "link"), path).not.toBeNull();
    expect(whyHostExecuted("/repo/link", "link")).toBeNull();
  });

  it("a mount that is itself such a thing is never bound directly", () => {
    const free = { write: "pre_approved", delete: "pre_approved" } as const;
    const mount = (host: string) =>
      ({ name: "a", path: "/a" as VirtualPath, host, mode: "rw", approval: free }) as const;
    for (const host of ["/repo/.vscode", "/repo/.git/hooks", "/repo/.git", "/repo/.github/workflows", "/repo/.envrc"]) {
      expect(isHostExecutedRoot(mount(host)), host).toBe(true);
      expect(deliveryOf(mount(host)), host).toBe("view");
    }
    for (const host of ["/repo", "/srv/bare.git", "/repo/.github"])
      expect(deliveryOf(mount(host)), host).toBe("direct");
    const seen = { ...mount("/state/view"), view: { origin: "/repo/.vscode", asked: free } };
    expect(deliveryOf(seen)).toBe("direct");
  });
});
