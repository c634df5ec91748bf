from __future__ import annotations

import unittest

from corral import Corral, Progress, Refused, WrongRequest

from .support import Cutter, client, env, port_of_service

TEMPLATE = {"n": "{n}", "fail": "{fail}"}


class Fleets(unittest.TestCase):
    def test_200_items_come_as_they_end_with_failures_as_values(self) -> None:
        seen: list[Progress] = []
        items = [{"id": f"item {n}", "n": n, "fail": n % 50 == 7} for n in range(200)]
        results = list(
            client().map("picky", items, input=TEMPLATE, reuse="scrubbed", policy="batch", cache=False, on_progress=seen.append)
        )
        self.assertEqual(sorted(one.index for one in results), list(range(200)))
        failed = sorted(one.index for one in results if not one.ok)
        self.assertEqual(failed, [7, 57, 107, 157])
        for one in results:
            self.assertEqual(one.key, f"item {one.index}")
            self.assertEqual(one.value, items[one.index])
            self.assertIn(f'"n":{one.index},', str(one.output))
        worst = next(one for one in results if one.index == 57)
        self.assertEqual((worst.status, worst.exit_code), ("failed", 4))
        self.assertEqual(str(seen[-1]), "200 of 200, 4 failed")
        self.assertEqual([one.done for one in seen], list(range(1, 201)))

    def test_a_fleet_is_followed_over_broken_connections_and_from_another_process(self) -> None:
        items = [{"id": str(n), "n": n, "fail": False} for n in range(24)]
        fleet = client().start_map("picky", items, input=TEMPLATE, reuse="scrubbed", policy="batch", cache=False)
        with Cutter(port_of_service(), [400, 900, -10, 1500, 5, 2000, -333], only=b"/events") as proxy:
            through = Corral(f"http://127.0.0.1:{proxy.port}", token=env("CORRAL_TEST_TOKEN"))
            first = through.attach_fleet(fleet.id)
            some = []
            for one in first.results(outputs=False):
                some.append(one.index)
                if len(some) == 10:
                    break
            # Another process has the id and the cursor, and nothing else.
            second = through.attach_fleet(fleet.id, cursor=first.cursor)
            rest = [one.index for one in second.results(outputs=False)]
            self.assertGreaterEqual(proxy.made, 5)
        self.assertEqual(sorted(some + rest), list(range(24)))
        self.assertEqual([item.index for item in fleet.items(status="succeeded")], list(range(24)))
        self.assertEqual(fleet.show().state, "done")
        self.assertEqual(fleet.cancel(), "ended")
        self.assertEqual(len(list(fleet.results(outputs=False))), 24)
        self.assertEqual(list(fleet.results(outputs=False)), [])

    def test_one_of_the_command_line_is_read_without_events(self) -> None:
        id = env("CORRAL_TEST_FLEET")
        results = list(client().attach_fleet(id).results())
        self.assertEqual([(one.status, one.ok) for one in results], [("succeeded", True)])
        self.assertIn("a document", str(results[0].output))

    def test_failed_items_run_again(self) -> None:
        items = [{"id": str(n), "n": n, "fail": n == 1} for n in range(3)]
        fleet = client().start_map("picky", items, input=TEMPLATE, cache=False)
        self.assertEqual(len(list(fleet.results())), 3)
        fleet.retry()
        self.assertEqual([(one.index, one.ok) for one in fleet.results()], [(1, False)])

    def test_a_loop_that_is_left_cancels_what_waits(self) -> None:
        items = [{"id": str(n), "n": n, "fail": False} for n in range(60)]
        corral = client()
        results = corral.map("brief", items, input=TEMPLATE, concurrency=2, cache=False)
        first = next(iter(results))
        results.close()  # type: ignore[attr-defined]
        list(corral.attach_fleet(first.fleet).events())
        fleet = corral.attach_fleet(first.fleet).show()
        self.assertEqual(fleet.state, "cancelled")
        self.assertLess(fleet.counts.raw.get("succeeded", 0), 60)

    def test_mistakes_are_exceptions_before_anything_runs(self) -> None:
        corral = client()
        with self.assertRaises(WrongRequest) as caught:
            list(corral.map("picky", [{"id": "1"}], input={"n": "{nothing}"}))
        self.assertEqual(caught.exception.code, "WRONG_ITEMS")
        with self.assertRaises(Refused):
            corral.start_map(fleet="none")
        self.assertEqual([one.ok for one in corral.start_map(fleet="all").results()], [True])


if __name__ == "__main__":
    unittest.main()
