import unittest


class Sum(unittest.TestCase):
    def test_six_times_seven(self) -> None:
        self.assertEqual(6 * 7, 42)
