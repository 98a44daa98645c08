"""Believable events: a shop's orders, with regular customers, prices that differ, some late and some malformed ones.

Pure: a seed and the time in, records out. Every order carries its number, so that an audit can tell whether one is
missing; malformed ones carry none, which is what makes them malformed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

PRODUCTS: Final = (
    ("espresso beans", 14.9),
    ("oat milk", 2.49),
    ("grinder", 89.0),
    ("mug", 11.5),
    ("filter papers", 3.99),
    ("kettle", 45.0),
)
CITIES: Final = ("Bern", "Lyon", "Graz", "Ghent", "Turin", "Porto")
LATE_SHARE: Final = 0.03
MALFORMED_SHARE: Final = 0.01
LATE_MAX_S: Final = 20.0
CUSTOMERS: Final = 400
SCHEMA: Final = "number bigint, customer string, city string, product string, amount double, at timestamp"


@dataclass(frozen=True, slots=True)
class Event:
    key: bytes
    value: bytes
    is_malformed: bool
    is_late: bool


class Shop:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def orders(self, count: int, now_s: float) -> Iterator[Event]:
        """The next `count` orders, as of now. Few customers buy most."""
        for _ in range(count):
            customer = f"c{min(int(self._random.paretovariate(1.1)), CUSTOMERS):03}"
            if self._random.random() < MALFORMED_SHARE:
                yield Event(customer.encode(), self._malformed(customer), True, False)
                continue
            is_late = self._random.random() < LATE_SHARE
            at_s = now_s - (self._random.uniform(2, LATE_MAX_S) if is_late else self._random.uniform(0, 0.5))
            product, price = self._random.choice(PRODUCTS)
            self._number += 1
            order = {
                "number": self._number,
                "customer": customer,
                "city": CITIES[hash_of(customer) % len(CITIES)],
                "product": product,
                "amount": round(price * self._random.randint(1, 4) * self._random.uniform(0.9, 1.1), 2),
                "at": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds"),
            }
            yield Event(customer.encode(), json.dumps(order).encode(), False, is_late)

    def _malformed(self, customer: str) -> bytes:
        return self._random.choice(
            (b'{"number": ', b"order from " + customer.encode(), b'{"number": "many", "customer": 7}', b"")
        )

    @property
    def made(self) -> int:
        """How many well-formed orders there have been: their numbers are 1 to this."""
        return self._number


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum(byte * 31**nth for nth, byte in enumerate(text.encode()))
