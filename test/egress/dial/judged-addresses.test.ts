import { networkInterfaces } from "node:os";
import { describe, expect, it } from "vitest";
import { isOwnAddress, judgedAddresses } from "../../../src/egress/dial/dial.ts";
import type { NetworkRule } from "../../../src/sandbox/network/rule.ts";

const { signal } = new AbortController();

function judged(addresses: readonly string[], rule: Partial<NetworkRule> = {}, host = "a.test") {
  return judgedAddresses({ host, port: 1 }, [{ to: `${host}:1`, ...rule }], async () => addresses, signal);
}

describe("addresses of a name", () => {
  it.each([
    ..."0.0.0.0 0.1.2.3 127.0.0.1 127.8.9.1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 169.254.169.254".split(
      " ",
    ),
    ..."192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 192.88.99.1 224.0.0.1 239.1.1.1 240.0.0.1".split(" "),
    ..."255.255.255.255 168.63.129.16 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1".split(" "),
    ..."::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1:: 3fff::1".split(" "),
    ..."fc00::1 fd00:ec2::254 fe80::1 fe80::1%lo fec0::1 ff02::1 5f00::1 4000::1".split(" "),
  ])("%s is not dialled if no rule names it", async (address) => {
    expect(await judged([address])).toMatchObject({ ok: false });
  });

  it("are dialled if they are public, the others left out", async () => {
    expect(await judged(["10.0.0.1", "93.184.216.34", "2606:4700::1111", "::1"])).toEqual({
      ok: true,
      addresses: ["93.184.216.34", "2606:4700::1111"],
    });
  });

  it("that are private are dialled only within those of the rule, IPv4 within IPv6 as IPv4", async () => {
    const rule = { addresses: ["10.1.0.0/16"] };
    expect(await judged(["10.1.2.3", "10.2.0.1", "93.184.216.34"], rule)).toMatchObject({ addresses: ["10.1.2.3"] });
    expect(await judged(["::ffff:10.1.2.3"], rule)).toMatchObject({ addresses: ["10.1.2.3"] });
    expect(await judged(["::ffff:10.2.2.3"], rule)).toMatchObject({ ok: false });
  });

  it("of this machine are not dialled, also if they are public", async () => {
    const own = Object.values(networkInterfaces())
      .flatMap((each) => each ?? [])
      .filter(({ internal }) => !internal);
    for (const { address } of own) expect([isOwnAddress(address), (await judged([address])).ok]).toEqual([true, false]);
  });

  it("that the host names itself are judged alike, and looked up nowhere", async () => {
    const lookedUp = () => Promise.reject(new Error("looked up"));
    const literal = (host: string, addresses?: string[]) =>
      judgedAddresses({ host, port: 1 }, [{ to: `${host}:1`, ...(addresses && { addresses }) }], lookedUp, signal);
    expect(await literal("[::1]")).toMatchObject({ ok: false, refusal: { reason: "address" } });
    expect(await literal("10.0.0.1")).toMatchObject({ ok: false, refusal: { reason: "address" } });
    expect(await literal("[::1]", ["::1/128"])).toEqual({ ok: true, addresses: ["::1"] });
  });

  it("that the resolver does not have, or has in no known form, are none", async () => {
    expect(await judged([])).toMatchObject({ refusal: { reason: "unresolved" } });
    expect(await judged(["2130706433", "0x7f.1", "a.test", "010.0.0.1"])).toMatchObject({
      refusal: { reason: "unresolved" },
    });
    const failing = () => Promise.reject(new Error("SERVFAIL from 10.0.0.53"));
    const answer = await judgedAddresses({ host: "a.test", port: 1 }, [{ to: "a.test:1" }], failing, signal);
    expect(answer).toMatchObject({ refusal: { detail: "a.test has no address." } });
  });
});
