import { describe, expect, it } from "vitest";
import {
  ApiError,
  EventParser,
  requestOf,
  ServiceClient,
  type ServiceRequest,
  type ServiceResponse,
} from "../../src/client/client.ts";
import { transportTo } from "../../src/client/node.ts";
import { httpServer, httpsServer, identityFor } from "../egress/servers.ts";

async function* piecesOf(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

/** A client whose requests get these answers, one after another. Null: 204. */
function played(answers: (string | null | Error)[]) {
  const asked: ServiceRequest[] = [];
  const client = new ServiceClient(async (request): Promise<ServiceResponse> => {
    asked.push(request);
    const answer = answers.shift() ?? null;
    if (answer instanceof Error) throw answer;
    return { status: answer === null ? 204 : 200, hasEnd: true, pieces: piecesOf(answer ?? "") };
  }, "t");
  return { client, asked };
}

const RUN = "0123456789ab";
const event = (id: number, index: number) => `id: ${id}\nevent: started\ndata: {"type":"started","index":${index}}\n\n`;

describe("a request", () => {
  it("has what is in the path, in the query and in the body where the contract has it", () => {
    expect(requestOf("runs.list", { limit: 5, calls: false, worker: undefined })).toEqual({
      method: "GET",
      path: "/v1/runs?limit=5&calls=false",
      json: null,
    });
    expect(requestOf("fleets.item", { fleet: RUN, key: "a b/ü&c" }).path).toBe(
      `/v1/fleets/${RUN}/item?key=a+b%2F%C3%BC%26c`,
    );
    expect(requestOf("changesets.apply", { changeset: RUN, digest: "d", only: [] })).toEqual({
      method: "POST",
      path: `/v1/changesets/${RUN}/apply`,
      json: '{"digest":"d","only":[]}',
    });
    expect(requestOf("fleets.resume", { fleet: RUN })).toMatchObject({ method: "POST", json: null });
    const use = requestOf("sessions.use", { session: RUN, tool: "read_file", input: { session: "/a" } });
    expect(use).toMatchObject({ path: `/v1/sessions/${RUN}/tools/read_file`, json: '{"session":"/a"}' });
  });

  it.each(["", ".", "..", undefined])("has no part %j in its path, which would lead elsewhere", (run) => {
    expect(() => requestOf("runs.stop", { run })).toThrow(RangeError);
  });

  it("is typed by the contract", () => {
    const { client } = played([]);
    const wrong = () => [
      // @ts-expect-error: there is no such operation.
      client.call("runs.remove", {}),
      // @ts-expect-error: the run is missing.
      client.call("runs.show", {}),
      // @ts-expect-error: it answers with events.
      client.call("runs.events", { run: RUN }),
      // @ts-expect-error: it answers with JSON.
      client.follow("runs.show", { run: RUN }),
      // @ts-expect-error: no such answer is offered.
      client.call("approvals.decide", { approval: RUN, digest: "d", answer: "always" }),
    ];
    expect(wrong).toBeTypeOf("function");
  });
});

describe("events", () => {
  it("continue after the last one that was seen, until the service says that there are no more", async () => {
    const { client, asked } = played([
      `${event(3, 0)}${event(7, 1)}id: 9\ndata: cut`,
      new ApiError(0, "CUT", "cut"),
      event(9, 2),
      null,
    ]);
    const seen: unknown[] = [];
    const states: boolean[] = [];
    const onConnected = (isConnected: boolean): void => void states.push(isConnected);
    for await (const one of client.follow("fleets.events", { fleet: RUN }, { onConnected })) seen.push(one);
    expect(seen).toEqual([3, 7, 9].map((id, index) => ({ id: String(id), event: { type: "started", index } })));
    expect(asked.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "7", "7", "9"]);
    expect(states).toEqual([true, false, false, true, false]);
  });

  it("are not whole if the stream ends again and again without their end", async () => {
    const { client, asked } = played(["", "", event(3, 0), "", "", ""]);
    const seen: string[] = [];
    const follow = async () => {
      for await (const { id } of client.follow("fleets.events", { fleet: RUN }, { retries: 1 })) seen.push(id);
    };
    await expect(follow()).rejects.toMatchObject({ code: "CUT", status: 0 });
    expect([seen, asked.length]).toEqual([[], 2]);
    await expect(follow()).rejects.toMatchObject({ code: "CUT", status: 0 });
    expect([seen, asked.length]).toEqual([["3"], 5]);
  });

  it("end with the caller's signal, also between two connections", async () => {
    const { client } = played([event(3, 0), "", "", ""]);
    const over = new AbortController();
    const follow = async () => {
      const how = {
        signal: over.signal,
        retries: 5,
        onConnected: (is: boolean) => is || over.abort(new Error("over")),
      };
      for await (const _ of client.follow("fleets.events", { fleet: RUN }, how));
    };
    await expect(follow()).rejects.toThrow("over");
  });
});

describe("an answer over the wire", () => {
  it("that ends in the middle is an error, whatever has cut it", async () => {
    await using server = await httpServer((request, response) => {
      if (request.url?.includes("stderr") === true) {
        // A proxy that knows no other end than that of the connection.
        response.useChunkedEncodingByDefault = false;
        response.shouldKeepAlive = false;
        response.writeHead(200).end("half");
        return;
      }
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => request.socket.destroy());
    });
    const client = new ServiceClient(transportTo(`http://127.0.0.1:${server.port}`), "t");
    const read = async (stream: "stdout" | "stderr") => {
      for await (const _ of await client.download("runs.output", { run: RUN, stream }));
    };
    await expect(read("stdout")).rejects.toMatchObject({ name: "ApiError", code: "CUT" });
    await expect(read("stderr")).rejects.toMatchObject({ name: "ApiError", code: "CUT" });
    await expect(client.call("host.caller", {})).rejects.toMatchObject({ code: "CUT" });
  });

  it("comes by TLS only from who has the certificate, and below the path of the address", async () => {
    const identity = identityFor("localhost");
    const asked: string[] = [];
    await using server = await httpsServer(identity, (request, response) => {
      asked.push(`${request.url} ${request.headers.authorization}`);
      response.setHeader("content-type", "application/json").end('{"name":"n","roles":[],"version":"1"}');
    });
    const client = new ServiceClient(transportTo(`https://localhost:${server.port}/team/corral/`), "secret");
    await expect(client.call("host.caller", {})).rejects.toMatchObject({ code: "UNREACHABLE" });
    expect(asked).toEqual([]);
    const { getCACertificates, setDefaultCACertificates } = await import("node:tls");
    const before = getCACertificates("default");
    setDefaultCACertificates([...before, identity.cert]);
    try {
      expect(await client.call("host.caller", {})).toMatchObject({ name: "n" });
    } finally {
      setDefaultCACertificates(before);
    }
    expect(asked).toEqual(["/team/corral/v1/caller Bearer secret"]);
  });

  it("that is a redirection or a page of a proxy is an error, and the token goes nowhere else", async () => {
    const asked: string[] = [];
    await using server = await httpServer((request, response) => {
      asked.push(request.url ?? "");
      response.writeHead(302, { location: "/elsewhere" }).end("<html>");
    });
    const client = new ServiceClient(transportTo(`http://127.0.0.1:${server.port}`), "t");
    await expect(client.call("host.caller", {})).rejects.toMatchObject({ status: 302, code: "UNKNOWN" });
    expect(asked).toEqual(["/v1/caller"]);
  });

  it.each([
    "ftp://host",
    "host:80",
    "unix:relative",
    "http://user:secret@host",
    "http://host/?a=b",
    "http://host//v1",
    "",
  ])("does not come from %j", (address) => {
    expect(() => transportTo(address)).toThrow(RangeError);
  });
});

describe("server-sent events", () => {
  it("are the same in whatever pieces they come", () => {
    const text =
      ': events\n\nid: 5\nevent: output\ndata: {"text":"a\\nb"}\n\n: idle\n\nid: 9\nevent: ended\ndata: {}\n\n';
    for (let at = 0; at <= text.length; at += 1) {
      const parser = new EventParser();
      const events = [...parser.push(text.slice(0, at)), ...parser.push(text.slice(at))];
      expect(events).toEqual([
        { id: "5", type: "output", data: '{"text":"a\\nb"}' },
        { id: "9", type: "ended", data: "{}" },
      ]);
    }
  });

  it("are bounded", () => {
    const parser = new EventParser();
    expect(() => {
      for (let count = 0; count < 40; count += 1) parser.push("x".repeat(1024 ** 2));
    }).toThrow("too long");
  });
});
