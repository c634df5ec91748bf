import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import tar from "tar-stream";
import { describe, expect, it } from "vitest";
import { describedRoutes } from "./service-client.ts";
import { project, service, serviceForAll } from "./service-for-all.ts";

serviceForAll();

const ROOT = join(import.meta.dirname, "../..");

async function sent(request: unknown, files: Readonly<Record<string, string | Buffer>>, token?: string) {
  const form = new FormData();
  form.set("request", JSON.stringify(request));
  for (const [name, content] of Object.entries(files))
    form.append("file", new File([new Uint8Array(Buffer.from(content))], name));
  const body = new Response(form);
  const headers = { "content-type": body.headers.get("content-type") ?? "" };
  const raw = Buffer.from(await body.arrayBuffer());
  return await service.ask("POST", "/v1/conversions", { raw, headers, ...(token === undefined ? {} : { token }) });
}

const ended = async (id: string) => {
  for (;;) {
    const { status, json } = await service.ask("GET", `/v1/conversions/${id}?wait=60`);
    expect(status, JSON.stringify(json)).toBe(200);
    if (json.state !== "running") return json;
  }
};

const uploads = async (): Promise<string[]> => {
  const own = (await readFile(join(project.stateDir, "service/uploads"), "utf8")).trim();
  return await readdir(join(tmpdir(), own));
};

describe("conversions", () => {
  it("take files, say of each what became of it, and send what was made, which no browser shows as what it is", async () => {
    const pdf = await readFile(join(ROOT, "templates/convert/inbox/hello.pdf"));
    const page = "<!doctype html><html><body><p>Words</p><script>alert(1)</script></body></html>";
    const { status, json } = await sent(
      { to: "parts", passwords: ["one"] },
      {
        "letter.eml": `From: a@example.org\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x
Content-Type: text/html\nContent-Disposition: attachment; filename="page.html"\n\n${page}\n--x--\n`,
        "broken.docx": "PK\u0003\u0004 this is no archive",
        "-results.jsonl": pdf,
      },
    );
    expect(status, JSON.stringify(json)).toBe(202);
    const id = json.conversion;
    const shown = await ended(id);
    expect(shown).toMatchObject({ id, to: "parts", state: "done", why: null });
    expect(shown.counts).toEqual({ total: 3, done: 1, notPossible: 2, refused: 0 });
    expect(shown.files.map((one: Record<string, unknown>) => [one.file, one.folder, one.verdict, one.reason])).toEqual([
      ["letter.eml", "letter.eml", "done", null],
      ["broken.docx", "broken.docx", "not possible", "damaged"],
      ["-results.jsonl", "%2Dresults.jsonl", "not possible", "no parts"],
    ]);
    expect((await service.ask("GET", "/v1/conversions")).json.conversions).toMatchObject([{ id, state: "done" }]);
    const [made] = shown.files[0].files.filter((name: string) => name.endsWith("page.html"));
    const place = (path: string) => `/v1/conversions/${id}/file?path=${encodeURIComponent(path)}`;
    const file = await service.ask("GET", place(`letter.eml/${made}`));
    expect(file.text).toContain("<script>alert(1)</script>");
    expect(file.headers).toMatchObject({
      "content-type": "application/octet-stream",
      "content-disposition": 'attachment; filename="page.html"',
      "x-content-type-options": "nosniff",
      "content-security-policy": expect.stringContaining("default-src 'none'"),
    });
    expect((await service.ask("GET", place("report.html"))).headers["content-disposition"]).toContain("attachment");
    for (const wrong of ["../passwords", "letter.eml", "letter.eml/../../passwords", "/etc/passwd", "nothing"])
      expect((await service.ask("GET", place(wrong))).status, wrong).toBe(404);
    const names: string[] = [];
    const extract = tar.extract();
    extract.on("entry", ({ name, type }, stream, next) => {
      if (type === "file") names.push(name);
      stream.resume().on("end", next);
    });
    const finished = once(extract, "finish");
    extract.end(await buffer(await service.open("GET", `/v1/conversions/${id}/files`)));
    await finished;
    expect(names).toEqual(expect.arrayContaining(["report.html", "results.jsonl", `letter.eml/${made}`]));
    // Nothing of it is a run, a fleet or a changeset of a served project, and nothing stays when it is removed.
    expect((await service.ask("GET", "/v1/runs")).json.runs).toEqual([]);
    expect((await service.ask("GET", "/v1/changesets")).json.changesets).toEqual([]);
    expect(await uploads()).toHaveLength(1);
    expect((await service.ask("DELETE", `/v1/conversions/${id}`)).json).toEqual({ id, outcome: "removed" });
    expect(await uploads()).toEqual([]);
    expect((await service.ask("GET", `/v1/conversions/${id}`)).json.error.code).toBe("UNKNOWN_CONVERSION");
  });

  it("end when they are removed, at whatever they are", async () => {
    const { json } = await sent(
      { to: "text" },
      Object.fromEntries([1, 2, 3, 4].map((one) => [`${one}.txt`, `${one}`])),
    );
    expect((await service.ask("DELETE", `/v1/conversions/${json.conversion}`)).status).toBe(200);
    expect(await uploads()).toEqual([]);
    expect((await project.corral(["ps", "--json"])).stdout).not.toContain("main.py");
  });

  it("are refused with the reason", async () => {
    const reader = (await project.corral(["serve", "token", "create", "--role", "read"])).stdout.trim();
    const answers = [
      await sent({ to: "text" }, { a: "a" }, reader),
      await sent({ to: "text" }, {}),
      await sent({ to: "words" }, { a: "a" }),
      await sent({ to: "text", ocr: "../eng" }, { a: "a" }),
      await sent({ to: "text", policy: "trusted" }, { a: "a" }),
      await service.ask("POST", "/v1/conversions", { body: { to: "text" } }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([403, 400, 400, 400, 400, 400]);
    expect(answers[5]?.json.error.message).toContain("as a form");
    expect(await uploads()).toEqual([]);
    const routes = (await describedRoutes(service)).filter((route) => route.includes("/v1/conversions"));
    // The archive was read as a stream.
    expect(routes.filter((route) => !service.seen.has(route))).toEqual(["GET /v1/conversions/{conversion}/files"]);
  });
});
