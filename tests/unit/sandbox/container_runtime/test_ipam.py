"""Addresses of pods."""

import pytest

from raytide_sandbox.container_runtime.interface import ContainerRuntimeError
from raytide_sandbox.container_runtime.ipam import Addresses


def test_addresses_follow_from_numbers() -> None:
    assert [Addresses("10.88", 65000).address(number) for number in (1, 2, 255, 256, 513)] == [
        "10.88.0.1",
        "10.88.0.2",
        "10.88.0.255",
        "10.88.1.0",
        "10.88.2.1",
    ]


def test_a_number_that_was_given_back_is_the_last_to_be_given_again() -> None:
    addresses = Addresses("10.88", 4)
    assert addresses.take() == 2
    addresses.release(2)
    assert [addresses.take() for _ in range(3)] == [3, 4, 2]


def test_low_numbers_first_where_ports_depend_on_them() -> None:
    addresses = Addresses("127.88", 160, is_reused_first=True)
    assert [addresses.take() for _ in range(3)] == [2, 3, 4]
    addresses.release(3)
    assert addresses.take() == 3


def test_addresses_are_unique_and_exhaustion_is_an_error() -> None:
    addresses = Addresses("10.88", 5)
    assert {addresses.take() for _ in range(4)} == {2, 3, 4, 5}
    with pytest.raises(ContainerRuntimeError, match="4 pods"):
        addresses.take()


def test_a_number_that_another_one_has_is_passed_over() -> None:
    addresses = Addresses("127.88", 160, is_reused_first=True)
    assert addresses.take(lambda number: number > 4) == 5
