"""Quantities are read, added and written exactly as Kubernetes does (RC:K-5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api.quantity import ZERO, Format, Quantity, QuantityError, to_bytes, to_millis, total

DECIMAL_FACTORS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_POWERS = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

signs = st.sampled_from(["", "-", "+"])
decimals = st.builds(
    "{}{}{}".format, signs, st.integers(0, 10**15), st.sampled_from(["", *DECIMAL_FACTORS, "e3", "E-6", "e+2"])
)
binaries = st.builds("{}{}{}".format, signs, st.integers(0, 2**12), st.sampled_from(list(BINARY_POWERS)))
fractions = st.builds("{}.{:03}{}".format, st.integers(0, 999), st.integers(0, 999), st.sampled_from(["", "k", "Gi"]))
texts = decimals | binaries | fractions


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("1", 10**9, id="a whole number"),
        pytest.param("1.5", 15 * 10**8, id="a fraction"),
        pytest.param(".5", 5 * 10**8, id="nothing before the point"),
        pytest.param("5.", 5 * 10**9, id="nothing after the point"),
        pytest.param("-2", -2 * 10**9, id="a minus sign"),
        pytest.param("+2", 2 * 10**9, id="a plus sign"),
        pytest.param("007", 7 * 10**9, id="leading zeros"),
        pytest.param("3n", 3, id="nano"),
        pytest.param("3u", 3_000, id="micro"),
        pytest.param("100m", 10**8, id="milli"),
        pytest.param("2k", 2 * 10**12, id="kilo"),
        pytest.param("2M", 2 * 10**15, id="mega"),
        pytest.param("2G", 2 * 10**18, id="giga"),
        pytest.param("2T", 2 * 10**21, id="tera"),
        pytest.param("2P", 2 * 10**24, id="peta"),
        pytest.param("2E", 2 * 10**27, id="exa is an E alone"),
        pytest.param("2E3", 2 * 10**12, id="an E with digits is an exponent"),
        pytest.param("2e-3", 2 * 10**6, id="a negative exponent"),
        pytest.param("12e+1", 12 * 10**10, id="a signed exponent"),
        pytest.param("2Ki", 2 * 1024 * 10**9, id="kibi"),
        pytest.param("1.5Mi", 3 * 2**19 * 10**9, id="one and a half mebi"),
        pytest.param("2Gi", 2 * 2**30 * 10**9, id="gibi"),
        pytest.param("2Ti", 2 * 2**40 * 10**9, id="tebi"),
        pytest.param("2Pi", 2 * 2**50 * 10**9, id="pebi"),
        pytest.param("2Ei", 2 * 2**60 * 10**9, id="exbi"),
        pytest.param("1.0000000001", 10**9 + 1, id="finer than nano is rounded away from zero"),
        pytest.param("-1.0000000001", -(10**9) - 1, id="also below zero"),
        pytest.param("0.1n", 1, id="a trace becomes one nano"),
        pytest.param("16Ei", (2**63 - 1) * 10**9, id="binary amounts are capped at what 63 bits hold"),
        pytest.param(4, 4 * 10**9, id="a JSON integer"),
        pytest.param(0.1, 10**8, id="a JSON number, as written and not as its float"),
    ],
)
def test_reads_the_exact_amount_of(text, nanos):
    assert Quantity.parse(text).nanos == nanos


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "1 ", " 1", "m", "Gi", ".", "-", "1.2.3", "1K", "1ki", "1mi", "1GiB", "1 Gi", "1e", "1e1.5", "0x10",
        "1_000", "١", "1e101", "1" * 300, "--1", "nan", "inf", True, None, [], "1\n",
    ],
)  # fmt: skip
def test_rejects_what_is_no_quantity_and_quotes_it(text):
    with pytest.raises(QuantityError) as caught:
        Quantity.parse(text)
    assert repr(text) in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_quantity_or_rejected(text):
    rejected = None
    try:
        quantity = Quantity.parse(text)
    except QuantityError as error:
        rejected = error
    assert rejected.text == text if rejected else Quantity.parse(str(quantity)) == quantity


@pytest.mark.rule("RC:K-5")
@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("1.5", "1500m", id="no fraction"),
        pytest.param("1500m", "1500m", id="milli that is not whole stays milli"),
        pytest.param("1000m", "1", id="a thousand milli is one"),
        pytest.param("1000", "1k", id="the largest decimal suffix that is exact"),
        pytest.param("1024Mi", "1Gi", id="the largest binary suffix that is exact"),
        pytest.param("1536Mi", "1536Mi", id="binary that is not whole stays smaller"),
        pytest.param("1.5Gi", "1536Mi", id="a binary fraction uses the smaller suffix"),
        pytest.param("0.5Ki", "512", id="less than 1024 has no binary suffix"),
        pytest.param("0.9765625Ki", "1k", id="but may have a decimal one"),
        pytest.param("1024", "1024", id="1024 in decimal"),
        pytest.param("1Ki", "1Ki", id="1024 in binary"),
        pytest.param("0.0001Ki", "102400u", id="a binary amount that is no integer is written in decimal"),
        pytest.param("0Gi", "0", id="zero has no suffix"),
        pytest.param("-1024Mi", "-1Gi", id="the sign stays"),
        pytest.param("1e3", "1e3", id="an exponent stays an exponent"),
        pytest.param("1500e-1", "150", id="an exponent of zero is left out"),
        pytest.param("12345e1", "123450", id="exponents are multiples of three"),
        pytest.param("5000E", "5000E", id="nothing is larger than exa"),
        pytest.param("4096Ei", "9223372036854775807", id="the binary cap"),
    ],
)
def test_writes_the_canonical_form(text, canonical):
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.rule("RC:K-5")
@pytest.mark.parametrize(
    ("addends", "sum_"),
    [
        pytest.param(["1", "500m"], "1500m", id="one and a half CPUs"),
        pytest.param(["1Gi", "1Gi"], "2Gi", id="two gibibytes"),
        pytest.param(["1Gi", "1000M"], "2073741824", id="binary first, and no larger binary suffix is exact"),
        pytest.param(["1000M", "1Gi"], "2073741824", id="decimal first"),
        pytest.param(["1024M", "1024Mi"], "2097741824", id="decimal and binary"),
        pytest.param(["2k", "2Ki"], "4048", id="the result is decimal if the first one is"),
        pytest.param(["2Ki", "2048"], "4Ki", id="the result is binary if the first one is"),
        pytest.param(["0", "1Gi"], "1Gi", id="zero has no format of its own"),
        pytest.param(["1Gi", "0"], "1Gi", id="zero changes nothing"),
        pytest.param(["100m"] * 10, "1", id="ten tenths are one"),
        pytest.param([], "0", id="nothing"),
    ],
)
def test_adds_exactly_in_the_format_of_the_first(addends, sum_):
    assert str(total(Quantity.parse(text) for text in addends)) == sum_


@given(texts)
def test_writing_and_reading_again_changes_nothing(text):
    quantity = Quantity.parse(text)
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(st.lists(texts, max_size=8))
def test_a_sum_does_not_depend_on_the_order(addends):
    quantities = [Quantity.parse(text) for text in addends]
    assert total(quantities) == total(reversed(quantities)) == Quantity(sum(q.nanos for q in quantities))


@given(texts, st.integers(0, 1000))
def test_a_product_is_the_sum_of_equal_quantities(text, times):
    quantity = Quantity.parse(text)
    assert quantity * times == total([quantity] * times)
    assert (quantity - quantity).is_zero


@given(texts)
def test_rounding_goes_up_and_by_less_than_one(text):
    quantity = Quantity.parse(text)
    assert 0 <= quantity.ceil_to_int() * 10**9 - quantity.nanos < 10**9
    assert 0 <= quantity.ceil_to_millis() * 10**6 - quantity.nanos < 10**6


def test_compares_amounts_and_not_spellings():
    assert Quantity.parse("1Gi") == Quantity.parse("1073741824")
    assert hash(Quantity.parse("1Gi")) == hash(Quantity.parse("1073741824"))
    assert Quantity.parse("1G") < Quantity.parse("1Gi")
    assert Quantity.parse("1Gi").format is Format.BINARY
    assert Quantity.parse("0Ki") == ZERO


def test_gives_millis_and_bytes_of_text():
    assert to_millis("1.5") == 1500
    assert to_millis("1u") == 1
    assert to_bytes("2Gi") == 2147483648
    assert to_bytes("100m") == 1
