import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import type { RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/index.ts";
import { httpServer, httpsServer, identityFor, type TestServer } from "../egress/servers.ts";
import { openProject, type ProjectFixture, python, sh } from "./project-fixture.ts";

/* Programs as users have them, in cells, against servers of this machine. What an attacker would send is in test/attacks/egress. */

const identity = identityFor("tunnel.example", "read.example", "a.wild.example");
const folder = mkdtempSync(join(tmpdir(), "corral-served-"));

/** Says who was asked for what; below `/repo.git/` it serves a repository as plain files. */
const answer: RequestListener = (request, response) => {
  const { method, url = "", headers } = request;
  if (!url.startsWith("/repo.git/")) return void response.end(`${method} ${headers.host} ${url}\n`);
  try {
    response.end(readFileSync(join(folder, normalize(new URL(url, "http://x").pathname))));
  } catch {
    response.writeHead(404).end();
  }
};

let tls: TestServer;
let plain: TestServer;
let project: ProjectFixture;

const FETCH = `
for (const url of process.argv.slice(1)) console.log(await fetch(url).then((answer) => answer.text(), (error) => error.cause?.code + "\\n"));
`;

const URLLIB = `
import ssl, sys, urllib.request
context = ssl._create_unverified_context()
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, context=context).read().decode(), end="")
    except Exception as error: print(type(error).__name__, getattr(error, "code", ""), error)
`;

beforeAll(async () => {
  execFileSync("git", ["init", "-q", "--bare", "-b", "main", join(folder, "repo.git")]);
  const commit = `cd $(mktemp -d) && git init -q -b main && git -c user.name=a -c user.email=a@a.example commit -q --allow-empty -m one && git push -q ${folder}/repo.git main`;
  execFileSync("sh", ["-c", `${commit} && git --git-dir ${folder}/repo.git update-server-info`]);
  [tls, plain] = await Promise.all([httpsServer(identity, answer), httpServer(answer)]);
  const addresses = ["127.0.0.0/8"];
  const network = {
    allow: [
      { to: `tunnel.example:${tls.port}`, addresses },
      { to: `tunnel.example:${plain.port}`, addresses },
      { to: `read.example:${tls.port}`, addresses, methods: ["GET"], paths: ["/ok/**"] },
      { to: `*.wild.example:${tls.port}`, addresses },
      { to: `*.wild.example:${plain.port}`, addresses },
    ],
  };
  const urls = [
    `http://tunnel.example:${plain.port}/one`,
    `http://read.example:${tls.port}/ok/two`,
    `http://read.example:${tls.port}/other`,
  ];
  const further = [
    `https://tunnel.example:${tls.port}/three`,
    `https://a.wild.example:${tls.port}/four`,
    `http://b.wild.example:${plain.port}/five`,
    `http://other.example:${plain.port}/six`,
  ];
  const curl = [...urls, ...further].map((url) => `curl -sk '${url}' || echo "curl $?"`);
  const posts = `curl -s -X POST 'http://read.example:${tls.port}/ok/x'`;
  const clone = `git -c http.sslVerify=false clone -q https://tunnel.example:${tls.port}/repo.git /tmp/r && git -C /tmp/r log --format=%s`;
  project = await openProject(
    {
      workers: {
        curl: { command: sh([...curl, posts].join("; ")), sandbox: { network } },
        urllib: { command: [...python(URLLIB), ...urls, ...further], image: "corral/python", sandbox: { network } },
        fetch: {
          command: ["node", "--input-type=module", "-e", FETCH, ...urls],
          image: "corral/node",
          sandbox: { network },
        },
        git: { command: sh(clone), image: "corral/node", sandbox: { network } },
      },
      sandbox: { network },
      policy: "default",
    },
    {
      networkHost: { resolveName: async () => ["127.0.0.1"], trustedRoots: async () => [identity.cert] },
    },
  );
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
  await Promise.all([tls[Symbol.asyncDispose](), plain[Symbol.asyncDispose]()]);
  rmSync(folder, { recursive: true });
});

describe("a program in a cell with an allow list", () => {
  /** What servers of allowed hosts answered, in the order of the requests. */
  const answered = (): string[] => [
    `GET tunnel.example:${plain.port} /one`,
    `GET read.example:${tls.port} /ok/two`,
    `GET tunnel.example:${tls.port} /three`,
    `GET a.wild.example:${tls.port} /four`,
    `GET b.wild.example:${plain.port} /five`,
  ];
  const reasons = ({ network }: RunResult): string[] => (network?.denied ?? []).map(({ reason }) => reason).toSorted();

  it("is curl: by HTTP and HTTPS, by names and by the proxy, and it can read why it was refused", async () => {
    const result = await project.run("curl");
    const [one, two, ...rest] = answered();
    const lines = result.stdout.trimEnd().split("\n");
    expect([...lines.slice(0, 2), ...lines.slice(3, 6)]).toEqual([one, two, ...rest]);
    expect(lines[2]).toMatch(/^This path is not allowed for GET to read\.example/);
    expect(lines[6]).toMatch(/^other\.example:\d+ is not allowed\. Allowed: /);
    expect(lines[7]).toMatch(/^POST is not allowed for read\.example/);
    expect(reasons(result)).toEqual(["host", "method", "path"]);
    expect(result.network?.allowed).toHaveLength(5);
  });

  it("is Python's urllib, with the proxy for what has no address in the cell", async () => {
    const result = await project.run("urllib");
    const lines = result.stdout.trimEnd().split("\n");
    expect(lines.filter((line) => line.startsWith("GET"))).toEqual(answered());
    expect(lines.filter((line) => line.startsWith("HTTPError 403"))).toHaveLength(2);
    expect(reasons(result)).toEqual(["host", "path"]);
  });

  it("is Node's fetch", async () => {
    const { stdout } = await project.run("fetch");
    expect(stdout.split("\n").filter((line) => line.startsWith("GET"))).toEqual(answered().slice(0, 2));
    expect(stdout).toContain("This path is not allowed for GET to read.example");
  });

  it("is git over HTTPS", async () => {
    expect(await project.run("git")).toMatchObject({ status: "succeeded", stdout: "one\n", network: { denied: [] } });
  });
});
