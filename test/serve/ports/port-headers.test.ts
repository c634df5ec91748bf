import { describe, expect, it } from "vitest";
import { headersInside, headersOutside, refusedRequest, socketAnswer } from "../../../src/serve/ports/port-headers.ts";

const place = { host: "p1.localhost:4000", address: "127.0.0.1:4000", port: 8000 };
const isKnown = (secret: string) => secret === "good";

interface Asked {
  readonly method?: string;
  readonly url?: string;
  readonly host?: string | string[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly isSocket?: boolean;
}

function refusal({ method = "GET", url = "/", host = place.host, headers = {}, isSocket = false }: Asked) {
  const hosts = [host].flat().flatMap((one) => ["Host", one]);
  const rawHeaders = [...hosts, ...Object.entries(headers).flat()];
  return refusedRequest({ method, url, headers, rawHeaders }, place, isKnown, isSocket)?.status ?? null;
}

describe("who sees a port of a session", () => {
  const cookie = { cookie: "a=b; corral-port=good" };
  const origin = "http://p1.localhost:4000";

  it.each<[string, Asked, number | null]>([
    ["a browser with the cookie", { headers: cookie }, null],
    ["one that shadows it with another path", { headers: { cookie: "corral-port=bad; corral-port=good" } }, null],
    ["a browser without it", {}, 401],
    ["a wrong cookie", { headers: { cookie: "corral-port=bad" } }, 401],
    ["a cookie whose name ends alike", { headers: { cookie: "x-corral-port=good" } }, 401],
    ["a cookie by the address, which all ports of this machine share", { host: place.address, headers: cookie }, 401],
    ["a program with the header", { host: place.address, headers: { "x-corral-port": "good" } }, null],
    ["a program with a wrong header", { host: place.address, headers: { "x-corral-port": "bad" } }, 401],
    ["a page with the header", { host: place.address, headers: { "x-corral-port": "good", origin } }, 403],
    ["a name that was made to mean this machine", { host: "evil.example:4000", headers: cookie }, 403],
    ["the name of another port", { host: "p2.localhost:4000", headers: cookie }, 403],
    ["two hosts", { host: [place.host, "evil.example"], headers: cookie }, 403],
    ["its own page", { headers: { ...cookie, origin, "sec-fetch-site": "same-origin" } }, null],
    ["the page of another origin", { headers: { ...cookie, origin: "http://127.0.0.1:80" } }, 403],
    ["the page of another port of this name", { headers: { ...cookie, "sec-fetch-site": "same-site" } }, 403],
    ["a link of another site", { headers: { ...cookie, "sec-fetch-site": "cross-site" } }, 403],
    ["its own WebSocket", { isSocket: true, headers: { ...cookie, origin } }, null],
    ["a WebSocket without an origin", { isSocket: true, headers: cookie }, 403],
    ["a WebSocket of another origin", { isSocket: true, headers: { ...cookie, origin: "http://evil.example" } }, 403],
    ["a service worker", { headers: { ...cookie, "service-worker": "script" } }, 403],
    ["a proxy's request", { url: "http://p1.localhost:4000/", headers: cookie }, 400],
    ["TRACE", { method: "TRACE", headers: cookie }, 400],
  ])("%s", (_, asked, status) => {
    expect(refusal(asked)).toBe(status);
  });
});

describe("what goes into the cell", () => {
  it("is asked at its own address, without any token, cookie or header of Corral's or of one connection", () => {
    const token = `corral_${"a".repeat(43)}`;
    const inside = headersInside(
      {
        host: ["p1.localhost:4000"],
        origin: ["http://p1.localhost:4000"],
        referer: ["http://p1.localhost:4000/a?b"],
        cookie: ["a=1; corral-port=good; b=c=d; flag"],
        authorization: [`Bearer ${token}`],
        "x-other": [`x ${token}`, "kept"],
        "x-corral-port": ["good"],
        "x-forwarded-for": ["10.0.0.1"],
        connection: ["keep-alive, X-Hop"],
        "x-hop": ["1"],
        "transfer-encoding": ["gzip, chunked"],
        te: ["trailers"],
        accept: ["*/*"],
      },
      place,
    );
    expect(inside).toEqual({
      host: "localhost:8000",
      origin: "http://localhost:8000",
      referer: "http://localhost:8000/a?b",
      cookie: "a=1; b=c=d; flag",
      "x-other": "kept",
      "transfer-encoding": "chunked",
      accept: "*/*",
    });
    const foreign = {
      referer: ["http://127.0.0.1:80/secret"],
      authorization: ["Basic YTpi"],
      cookie: ["corral-port=good"],
    };
    expect(headersInside(foreign, place)).toEqual({ host: "localhost:8000", authorization: "Basic YTpi" });
  });
});

describe("what comes out of the cell", () => {
  const outside = (headersDistinct: Record<string, string[]>, statusCode = 200) =>
    headersOutside({ statusCode, headersDistinct }, place, "/dir/page");
  const passed = (headersDistinct: Record<string, string[]>, statusCode = 200) => {
    const answer = outside(headersDistinct, statusCode);
    return answer.ok ? answer.headers : {};
  };

  it("keeps its cookies to its own origin, and never sets Corral's", () => {
    const { "set-cookie": cookies } = passed({
      "set-cookie": [
        "a=1; Domain=localhost; Path=/; HttpOnly",
        "b=2;domain = .127.0.0.1 ;Secure",
        "corral-port=bad; Path=/x",
        " corral-port =bad",
        "c=domain=x",
        "d=4; DOMAIN",
      ],
    });
    expect(cookies).toEqual(["a=1; Path=/; HttpOnly", "b=2;Secure", "c=domain=x", "d=4"]);
  });

  it.each<[string, string | null]>([
    ["/next", "http://p1.localhost:4000/next"],
    ["next?a#b", "http://p1.localhost:4000/dir/next?a#b"],
    ["http://localhost:8000/a", "http://p1.localhost:4000/a"],
    ["http://127.0.0.1:8000//evil.example/", "http://p1.localhost:4000//evil.example/"],
    ["http://p1.localhost:4000/a", "http://p1.localhost:4000/a"],
    ["//evil.example/", null],
    ["/\\evil.example/", null],
    ["http://127.0.0.1:7777/v1/runs", null],
    ["http://localhost/v1/runs", null],
    ["http://p2.localhost:4000/", null],
    ["https://localhost:8000/", null],
    ["javascript:alert(1)", null],
    ["data:text/html,x", null],
    ["http://[", null],
  ])("leads from %s to %s", (location, to) => {
    const answer = outside({ location: [location] }, 302);
    expect(answer.ok ? answer.headers.location : null).toBe(to);
    if (to === null) expect(answer).toMatchObject({ ok: false, refusal: { status: 502 } });
  });

  it("says nothing that a browser keeps, and cannot loosen what holds for its page", () => {
    const headers = passed({
      "strict-transport-security": ["max-age=1"],
      "alt-svc": ['h2="evil.example:443"'],
      "clear-site-data": ['"*"'],
      "service-worker-allowed": ["/"],
      "access-control-allow-origin": ["*"],
      "x-frame-options": ["ALLOWALL"],
      "cross-origin-opener-policy": ["unsafe-none"],
      "content-security-policy": ["default-src *"],
      refresh: ["0; url=http://127.0.0.1:7777/"],
      connection: ["x-gone"],
      "x-gone": ["1"],
      upgrade: ["h2c"],
      "content-type": ["text/html"],
    });
    expect(Object.keys(headers).toSorted()).toEqual([
      "content-security-policy",
      "content-type",
      "cross-origin-opener-policy",
      "cross-origin-resource-policy",
      "permissions-policy",
      "referrer-policy",
      "x-dns-prefetch-control",
      "x-frame-options",
    ]);
    expect(headers["content-security-policy"]).toEqual([
      "default-src *",
      expect.stringMatching(/connect-src 'self' ws:\/\/p1\.localhost:4000 .*frame-ancestors 'self'/),
    ]);
    expect([headers["x-frame-options"], headers["cross-origin-opener-policy"]]).toEqual(["SAMEORIGIN", "same-origin"]);
  });

  it.each([99, 199, 600, 999])("with status %i is none", (status) => {
    expect(outside({}, status)).toMatchObject({ ok: false, refusal: { status: 502 } });
  });

  it("answers a WebSocket with what belongs to it alone", () => {
    const headers = { upgrade: "WebSocket", "sec-websocket-accept": "x=", "set-cookie": ["corral-port=bad"] };
    expect(socketAnswer({ statusCode: 101, headers })).toBe(
      "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x=\r\n\r\n",
    );
    expect(socketAnswer({ statusCode: 101, headers: { upgrade: "h2c" } })).toBeNull();
    expect(socketAnswer({ statusCode: 200, headers })).toBeNull();
  });
});
