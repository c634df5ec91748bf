// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the strings are shell commands.
import { describe, expect, it } from "vitest";
import { decideShell, describeShellDecision } from "../../src/approval/shell-rules/decide.ts";
import type { ShellRules } from "../../src/approval/shell-rules/pattern.ts";
import { readLine } from "../../src/approval/shell-rules/reading.ts";
import type { Consent } from "../../src/sandbox/approval.ts";

/** `git status: pre_approved` for each rule. */
function rules(otherwise: Consent, table: Readonly<Record<string, Consent>> = {}): ShellRules {
  return { default: otherwise, rules: Object.entries(table).map(([pattern, approval]) => ({ pattern, approval })) };
}

const GIT = rules("ask", { "git status": "pre_approved", "echo **": "pre_approved", "rm **": "blocked" });

describe("a pattern", () => {
  it.each<[string, string, boolean]>([
    ["git status", "git status", true],
    ["git status", "  git   status  ", true],
    ["git status", "git \\\n status", true],
    ["git status", "git 'status'", true],
    ["git status", 'g"i"t \\status', true],
    ["git status", "git statusx", false],
    ["git status", "git status -s", false],
    ["git status", "git", false],
    ["git status", "git status $x", false],
    ["git status", "git status *", false],
    ["git status", "'git status'", false],
    ["git status", "Git status", false],
    ["git status", "./git status", false],
    ["git status", "/usr/bin/git status", false],
    ["git log **", "git log", true],
    ["git log **", "git log -p --all", true],
    ["git log **", 'git log "$branch"', true],
    ["git log **", "git logs", false],
    ["cat *", "cat a.md", true],
    ["cat *", "cat '../a b'", true],
    ["cat *", "cat", false],
    ["cat *", "cat a b", false],
    ["cat *.md", "cat a.md", true],
    ["cat *.md", "cat a.md.txt", false],
    ["cat *.md", "cat docs/a.md", false],
    ["cat docs/*.md", "cat docs/a.md", true],
    ["cat docs/*", "cat docs/..", false],
    ["cat */*", "cat ../x", false],
    ["cat a*b*c", "cat aXbXbXc", true],
    ["cat a*b*c", "cat ac", false],
    ["cat ab*ba", "cat aba", false],
    ["cat a*bc*c", "cat abc", false],
    ["cat *", 'cat "$x"', false],
    ["cat *", "cat *", false],
    ["cat *", "cat '*'", true],
    ["cat *", "cat ~/x", false],
    ["cat *", "cat '~/x'", true],
    ["cat {a,b}", "cat {a,b}", false],
    ["[ -f * ]", "[ -f x ]", true],
    ["**", "anything at all", true],
  ])("`%s` lets `%s` run unseen: %s", (pattern, command, expected) => {
    expect(decideShell(command, rules("ask", { [pattern]: "pre_approved" })).consent).toBe(
      expected ? "pre_approved" : "ask",
    );
  });

  it.each<[string, string]>([
    ["rm **", "rm -rf /"],
    ["rm **", "/bin/rm -rf /"],
    ["rm **", "\\rm x"],
    ["rm **", "../../bin/r'm' x"],
    ["cat docs/*", "cat docs/a/../../x"],
    ["git push **", "git push"],
    // What the shell makes of these could be what the rule is about.
    ["git push **", "git $verb"],
    ["git push **", "git {push,pull}"],
    ["git push", "git push $nothing"],
    ["cat /etc/passwd", "cat /etc/pass*"],
    ["cat /root/x", "cat ~/x"],
  ])("`%s` blocks `%s`", (pattern, command) => {
    expect(decideShell(command, rules("pre_approved", { [pattern]: "blocked" })).consent).toBe("blocked");
  });
});

describe("of several rules", () => {
  const several = rules("ask", {
    "git **": "pre_approved",
    "git push **": "ask",
    "git push --force **": "blocked",
    "git push origin docs": "pre_approved",
  });

  it.each<[string, Consent, string]>([
    ["git log", "pre_approved", "git **"],
    ["git push origin main", "ask", "git push **"],
    ["git push origin docs", "pre_approved", "git push origin docs"],
    ["git push --force origin docs", "blocked", "git push --force **"],
  ])("the one that says most decides `%s`", (command, consent, pattern) => {
    expect(decideShell(command, several)).toEqual({
      consent,
      because: { cause: "rule", part: command, pattern, why: null },
      runs: command,
    });
  });

  it("a blocking one wins, however little it says, and the order in the file says nothing", () => {
    const table = { "rm notes.txt": "pre_approved", "rm **": "blocked" } as const;
    const { rules: inOrder } = rules("ask", table);
    for (const order of [inOrder, inOrder.toReversed()]) {
      expect(decideShell("rm notes.txt", { default: "ask", rules: order }).consent).toBe("blocked");
    }
  });

  it("the stricter wins where two say as much", () => {
    const { rules: inOrder } = rules("ask", { "ls *": "pre_approved", "ls **": "ask" });
    for (const order of [inOrder, inOrder.toReversed()]) {
      expect(decideShell("ls x", { default: "pre_approved", rules: order }).consent).toBe("ask");
    }
  });
});

describe("every command of a command line counts, wherever it stands", () => {
  it.each([
    "git status; rm -rf /",
    "git status & rm -rf /",
    "git status\nrm -rf /",
    "git status && rm -rf /",
    "rm -rf / || git status",
    "git status | rm -rf /",
    "! rm -rf /",
    "(git status; rm -rf /)",
    "{ git status; rm -rf /; }",
    "echo $(rm -rf /)",
    'echo "a $(rm -rf /) b"',
    "echo `rm -rf /`",
    "echo `echo \\`rm -rf /\\``",
    "echo a > $(rm -rf /)",
    "x=$(rm -rf /) git status",
    "export x=$(rm -rf /)",
    "if git status; then rm -rf /; fi",
    "if rm -rf /; then git status; fi",
    "if git status; then git status; elif git status; then git status; else rm -rf /; fi",
    "while git status; do rm -rf /; done",
    "until rm -rf /; do git status; done",
    "for x in $(rm -rf /); do git status; done",
    "for x in a; do rm -rf /; done",
    "git status # harmless\nrm -rf /",
  ])("%j is blocked for what it holds", (command) => {
    expect(decideShell(command, GIT)).toMatchObject({ consent: "blocked", because: { pattern: "rm **" } });
  });

  it.each([
    "git status |& rm -rf /",
    "time -p rm -rf /",
    "echo <(rm -rf /)",
    "echo >(rm -rf /)",
    "echo ${x:-$(rm -rf /)}",
    "echo ${x/a/$(rm -rf /)}",
    "echo {a,$(rm -rf /)}",
    "echo [$(rm -rf /)]",
    "x=($(rm -rf /))",
    "echo <<E\n$(rm -rf /)\nE",
    "echo <<< $(rm -rf /)",
    "select x in a; do rm -rf /; done",
    "case $(rm -rf /) in x) git status;; esac",
    "case x in $(rm -rf /)) git status;; esac",
    "case x in x) rm -rf /;; esac",
    "git() { rm -rf /; }; git status",
    "function git { rm -rf /; }\ngit status",
    "coproc rm -rf /",
    "git sta\\\ntus; r\\\nm -rf /",
  ])("%j is blocked, because it cannot be printed for every shell", (command) => {
    expect(decideShell(command, GIT)).toMatchObject({ consent: "blocked", runs: command });
  });

  it.each(["echo 'rm -rf /'", "echo rm -rf /", "echo a # ; rm -rf /", "echo '$(rm -rf /)'", "echo \\$\\(rm\\)"])(
    "%j only speaks of the command",
    (command) => {
      expect(decideShell(command, GIT).consent).toBe("pre_approved");
    },
  );

  it("names the first of the strictest parts", () => {
    expect(decideShell("echo x `echo \\`rm   a\\``", GIT).because.part).toBe("rm a");
    expect(decideShell("git status; rm a; rm b; make", GIT).because.part).toBe("rm a");
  });
});

describe("what cannot be judged has the strictest consent that the rules name", () => {
  it.each([
    ["not whole", ["echo 'a", "echo $(ls", "if true", "git status; (", "echo `ls", "&& ls", "a () b"]],
    ["too deep", [`echo ${"$(echo ".repeat(300)}${")".repeat(300)}`, "$(".repeat(30_000)]],
    ["too long", [`git status ${"x".repeat(70_000)}`]],
    ["with control characters", ["git\u0000 status", "git status\r\nrm", "git\u001b[2K status"]],
    ["whose command is not written out", ["$x -rf /", "$(echo rm) x", '"$x"', "r? x", "{rm,x}", "~/run", "r$x"]],
    [
      "that bash calculates",
      [
        "echo $((x))",
        "((x))",
        "[[ x -eq 1 ]]",
        "echo ${x:y}",
        "echo ${a[x]}",
        "a[x]=1",
        "a[$(ls)]=1",
        "echo $(($(ls)))",
        "echo $(($1))",
      ],
    ],
    ["that bash expands twice", ["echo ${!x}", "echo ${x@P}", "echo ${!x@}"]],
    // dash runs what bash takes for text or calculates with.
    [
      "that is another thing to sh",
      ["echo a &>f rm x", "echo $'\\'; rm x #'", "((rm x))", "[[ a || rm x ]]", "echo $[1|2]"],
    ],
  ])("text that is %s", (_what, commands) => {
    for (const command of commands) {
      expect(decideShell(command, GIT).consent, command).toBe("blocked");
      expect(decideShell(command, rules("ask", { "git **": "pre_approved" })).consent, command).toBe("ask");
      expect(decideShell(command, rules("pre_approved")).consent, command).toBe("pre_approved");
    }
  });

  it.each([
    "eval rm x",
    "source x",
    ". x",
    "exec ls",
    "command ls",
    "builtin echo",
    "env ls",
    "/usr/bin/env ls",
    "echo x | xargs ls",
    "sudo ls",
    "sh -c ls",
    "bash x.sh",
    "busybox ls",
    "timeout 5 ls",
    "nohup ls",
    "trap ls EXIT",
    "alias echo=rm",
    "let x",
    "declare -i x",
    "find . -exec ls {} +",
    "find . $x",
    "printf -v 'x[$(rm)]' y",
    "[ -v 'x[$(rm)]' ]",
  ])("a command that runs another which it does not show: %s", (command) => {
    const open = rules("ask", { "**": "pre_approved", [`${command.split(" ")[0]} **`]: "pre_approved" });
    expect(decideShell(command, open)).toMatchObject({ consent: "ask", because: { cause: "hidden" } });
    expect(decideShell(command, GIT).consent).toBe("blocked");
  });

  it.each([
    "export PS4='$(rm x)'",
    "export 'PS4=$(rm x)' A=b",
    'export "P"S4',
    "export A=b ENV",
    'y=x; export "$y"',
    "readonly BASH_ENV=x",
    "read -r PS4 < x",
    'read "$x"',
    "read -aPS4",
    "mapfile -t PROMPT_COMMAND",
    "printf -v PS4 '$(rm x)'",
    "printf -vPS4 '$(rm x)'",
    "y=-vPS4; printf \"$y\" '$(rm x)'",
    "for PS4 in '$(rm x)'; do set -x; done",
  ])("a variable that shells run as commands, set so that a rule does not see it: %s", (command) => {
    const blocking = rules("pre_approved", { "rm **": "blocked", "export **": "pre_approved" });
    expect(decideShell(`${command}; set -x; ls`, blocking)).toMatchObject({
      consent: "blocked",
      because: { cause: "opaque" },
    });
  });

  it("setting other variables is nothing but that", () => {
    const blocking = rules("pre_approved", { "rm **": "blocked" });
    for (const command of [
      "export PATH=$HOME/bin:$PATH LANG=C",
      "set -eux",
      "read -r line",
      "printf '%s' \"$x\"",
      "echo PS4=x",
    ])
      expect(decideShell(command, blocking).consent, command).toBe("pre_approved");
  });

  it("such a command runs where a rule spells out the whole of it, and only then", () => {
    const named = rules("ask", { "bash build.sh": "pre_approved", "rm **": "blocked" });
    expect(decideShell("bash build.sh", named).consent).toBe("pre_approved");
    expect(decideShell("bash build.sh x", named).consent).toBe("blocked");
    const against = rules("ask", { "bash build.sh": "pre_approved", "bash **": "blocked" });
    expect(decideShell("bash build.sh", against).consent).toBe("blocked");
  });

  it("finding, testing and printing are nothing but that otherwise", () => {
    const usual = rules("ask", { "find **": "pre_approved", "[ **": "pre_approved", "printf **": "pre_approved" });
    expect(decideShell("find . -name x; [ -f a ] && printf '[%s]' x", usual).consent).toBe("pre_approved");
  });
});

describe("what stands beside the words needs the default's consent too", () => {
  it.each([
    ["LD_PRELOAD=./x.so git status", "assignment"],
    ["PATH=/x git status", "assignment"],
    ["PATH=/x; git status", "assignment"],
    ["for PATH in /x; do git status; done", "assignment"],
    ["git status > x", "redirection"],
    ["git status >> x", "redirection"],
    ["git status 2> x", "redirection"],
    ["git status < x", "redirection"],
    ["{ git status; } > x", "redirection"],
    ["> x", "redirection"],
  ])("%j", (command, cause) => {
    expect(decideShell(command, rules("ask", { "git status": "pre_approved" }))).toMatchObject({
      consent: "ask",
      because: { cause, pattern: null },
    });
    expect(decideShell(command, rules("blocked", { "git status": "pre_approved" })).consent).toBe("blocked");
    expect(decideShell(command, rules("pre_approved", { "git status": "ask" })).consent).toBe(
      command.includes("git") ? "ask" : "pre_approved",
    );
  });

  it.each(["git status 2>&1", "git status >/dev/null 2>&1", "git status </dev/null", "git status 2>&-"])(
    "%j opens no file that matters",
    (command) => {
      expect(decideShell(command, GIT).consent).toBe("pre_approved");
    },
  );
});

describe("what runs is what was judged: a line is printed anew", () => {
  it.each([
    ["ls   -la  'a' \"b\" c\\d", "ls -la a b cd"],
    ["git log --grep='it is' -- \\\n docs", "git log '--grep=it is' -- docs"],
    ["echo `git status \\`pwd\\``", "echo $(git status $(pwd))"],
    ["echo \"a $x b\"$y'c'", 'echo "a ${x} b"${y}c'],
    ['echo "\\$x \\` \\\\ \\" it\'s"', "echo '$x ` \\ \" it'\\''s'"],
    ["ls *.md [a-z]? ~/x ~ '~' '*'", "ls *.md [a-z]? ~/x ~ '~' '*'"],
    ["A=1 B=$x C=* make CC=gcc >a 2>&1 <b", "A=1 B=\"${x}\" C='*' make 'CC=gcc' > a 2>&1 < b"],
    ["a&b;c||! d|e&&f&", "a & b; c || ! d | e && f &"],
    ["a # comment\nb", "a\nb"],
    ["((a);b)", "( ( a ); b )"],
    ["$( (a))", "$( ( a ))"],
    ["if [ ! -f a ];then b&else { c;};fi", "if [ '!' -f a ]; then b & else { c; }; fi"],
    ['for f in *.md;do cat "$f";done', 'for f in *.md; do cat "${f}"; done'],
    ["until a\ndo b\ndone < c", "until a\ndo b\ndone < c"],
    ["\\if '!' \"{\" a=b", "'if' '!' '{' 'a=b'"],
    ["x\\=1 %1 -", "'x=1' %1 -"],
    ["%1", "'%1'"],
    ['echo \'\' "" é "a\nb"', "echo '' '' 'é' 'a\nb'"],
  ])("%j becomes %j, and that stays as it is", (written, printed) => {
    expect(readLine(written).printed).toBe(printed);
    expect(readLine(printed).printed).toBe(printed);
  });

  it.each([
    ["an operand that a quote ends for one shell alone", 'ls "${x:-\'}"; rm -v /text/precious; ls "\'}"'],
    ["a line that continues behind a dollar", "ls $\\\n${x:-; rm -v /text/precious; ls \\\\}"],
    ["a line that continues in a word", "ls a\\\nb"],
    ["a here-document", "cat <<E\nx\nE"],
    ["a function", "ls() { pwd; }; ls"],
    ["an alias of a user", "ls ~root"],
    ["arithmetic", "ls $((1 + 2))"],
    ["a brace expansion", "ls {a,b}"],
    ["a bracket pattern with a class", "ls [[:alpha:]]"],
    ["a descriptor that dash does not know", "ls 10>x"],
    ["a variable that bash runs", "BASH_ENV=x ls"],
    ["half a character", "ls \ud800"],
    ["a control character", "ls \u0085"],
    ["two negations", "! ! ls"],
  ])("%s cannot be printed so, and is opaque", (_what, command) => {
    expect(readLine(command).printed).toBeNull();
    expect(decideShell(command, rules("ask", { "ls **": "pre_approved", "**": "pre_approved" }))).toMatchObject({
      consent: "ask",
      because: { cause: "opaque" },
      runs: command,
    });
  });

  it("runs as written where every line may run", () => {
    const written = "cat <<E | f() { echo $((1)); }\nE";
    expect(decideShell(written, rules("pre_approved", { "ls **": "pre_approved" }))).toMatchObject({
      consent: "pre_approved",
      runs: written,
    });
  });
});

describe("a command line that the parser cannot read", () => {
  it.each(["f() ", "{ ", "( ", "! ", "if ", "while ", "$(", "`", "x=$((", "case ", "a=(", "${a:-"])(
    "nests %j without end and is opaque",
    (opening) => {
      for (const times of [5000, 12_001]) {
        const command = opening.repeat(times);
        expect(decideShell(command, GIT)).toMatchObject({ consent: "blocked", because: { cause: "opaque" } });
      }
    },
  );
});

describe("a command line that holds no command", () => {
  it.each(["", "   \n", "# only words"])("%j has the default's consent", (command) => {
    expect(decideShell(command, rules("blocked", { "**": "pre_approved" })).consent).toBe("blocked");
  });
});

describe("the words for a decision", () => {
  const told = (command: string, from: ShellRules = GIT) => describeShellDecision(decideShell(command, from));

  it("say which part it is about, which rule, and what to do instead", () => {
    const why: ShellRules = {
      default: "ask",
      rules: [{ pattern: "rm **", approval: "blocked", why: "nothing is deleted here." }],
    };
    expect(told("ls; rm -rf x", why)).toBe("`rm -rf x` is blocked: the rule `rm **` matches: nothing is deleted here.");
    expect(told("git status")).toBe("`git status` may run: the rule `git status` matches.");
    expect(told("make")).toBe("`make` needs approval: no rule matches, so the default applies.");
    expect(told("env ls")).toBe(
      "`env ls` is blocked: it runs another command that its words do not show. Run that command directly.",
    );
    expect(told("git $x", rules("pre_approved", { "git push **": "ask" }))).toBe(
      "`git ${x}` needs approval: after expansion the rule `git push **` could match. Write the words without expansions.",
    );
    expect(told("echo 'a")).toBe(
      "`echo 'a` is blocked: it cannot be analysed: the syntax is incomplete: unterminated single quote.",
    );
    expect(told("git status > x")).toContain("redirects to or from a file");
    expect(told("A=1 git status")).toContain("sets a variable");
    expect(told("git status <<< x")).toContain("pass it as standard input");
  });

  it("show nothing that could deceive a person at a terminal, and no more than they can read", () => {
    expect(told("git\u001b[2K status")).toContain("`git\\u{1b}[2K status`");
    expect(told("make \u202e")).toContain("`make '\\u{202e}'`");
    expect(told(`make ${"x".repeat(5000)}`).length).toBeLessThan(400);
  });
});
