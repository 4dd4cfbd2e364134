"""Options that the whole suite knows."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--histories", type=int, default=40, help="how many random histories the simulation tells")
    parser.addoption("--first-history", type=int, default=0, help="the seed of the first one")
    parser.addoption("--mutation", default="", help="break the product on purpose (see simulation/mutations.py)")
