"""sum, mean, var, std, min, max, count: to the last bit against fractions and math.fsum."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from support import same

SPECS = ["count:x", "sum:x", "mean:x", "var:x", "std:x", "min:x", "max:x"]


def to_float(q: Fraction) -> float:
    """Correctly rounded, infinite where it overflows."""
    try:
        return q.numerator / q.denominator
    except OverflowError:
        return math.inf if q > 0 else -math.inf


def root(q: Fraction) -> float:
    """The correctly rounded square root of a fraction."""
    if q == 0:
        return 0.0
    # Enough digits that the truncated integer root rounds as the true one does.
    shift = max(0, 140 - (q.numerator.bit_length() - q.denominator.bit_length()) // 2)
    n = (q.numerator << (2 * shift)) // q.denominator
    r = math.isqrt(n)
    sticky = 1 if r * r != n or (q.numerator << (2 * shift)) % q.denominator else 0
    return to_float(Fraction(2 * r + sticky, 1 << (shift + 1)))


def exact(values):
    """count, sum, mean, var (n - 1), std of finite values, each rounded once."""
    q = [Fraction(v) for v in values]
    n = len(q)
    s = sum(q)
    var = (sum(v * v for v in q) - s * s / n) / (n - 1) if n > 1 else None
    return n, to_float(s), to_float(s / n), None if var is None else to_float(var), var


def random_floats(seed, n, low, high):
    r = random.Random(seed)
    return [math.ldexp(r.uniform(-1, 1), r.randint(low, high)) for _ in range(n)]


CASES = {
    "one": [1.5],
    "two": [0.1, 0.2],
    "tenths": [0.1] * 10_001,
    "cancellation": [1e308, 1.0, -1e308, 1e-300] * 500,
    "big plus small": [1e16, 1.0, -1e16, 1.0] * 700 + [0.5],
    "variance far from zero": [1e9 + i / 7 for i in range(3000)],
    "subnormals": [5e-324, -5e-324, 5e-324, 1e-310, 2.2250738585072014e-308] * 300,
    "wide": random_floats(1, 4000, -1000, 900),
    "narrow": random_floats(2, 4000, -3, 3),
    "integers": [float(i * i * i) for i in range(-2000, 2000)],
    "zeros": [0.0, -0.0, 0.0],
    "near overflow": [1.7976931348623157e308, -1.7976931348623157e308, 1e308, -1e308, 3.0],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", ["csv", "npy"])
def test_moments_are_rounded_once(stead, tmp_path, name, how):
    values = CASES[name]
    if how == "csv":
        (tmp_path / "x.csv").write_text("x\n" + "".join(f"{v!r}\n" for v in values))
        dataset, specs = "x.csv", SPECS
    else:
        np.save(tmp_path / "x.npy", np.array(values).reshape(-1, 1))
        dataset, specs = "x.npy", [s.replace("x", "0").replace("ma0", "max") for s in SPECS]
    count, total, mean, var, std, low, high = stead.results(dataset, *specs, chunk="4KiB")
    n, want_sum, want_mean, want_var, exact_var = exact(values)
    assert count == n
    assert same(total, want_sum) or total == want_sum == 0
    assert total == math.fsum(values)
    assert same(mean, want_mean) or mean == want_mean == 0
    assert (low, high) == (min(values), max(values))
    if want_var is None:
        assert var is None and std is None
    else:
        assert same(var, want_var), (var, want_var)
        assert same(std, root(exact_var)) or std == pytest.approx(root(exact_var), rel=2.3e-16)


def test_a_sum_that_overflows_is_infinite(stead, tmp_path):
    (tmp_path / "x.csv").write_text("x\n" + "1.7976931348623157e308\n" * 3)
    total, mean = stead.results("x.csv", "sum:x", "mean:x")
    assert total == math.inf
    assert mean == 1.7976931348623157e308


@pytest.mark.parametrize(
    "values, total, low, high",
    [
        (["1", "inf"], math.inf, 1, math.inf),
        (["1", "-inf"], -math.inf, -math.inf, 1),
        (["inf", "-inf", "1"], math.nan, -math.inf, math.inf),
    ],
)
def test_infinities(stead, tmp_path, values, total, low, high):
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(values) + "\n")
    got, got_low, got_high = stead.results("x.csv", "sum:x", "min:x", "max:x")
    assert same(got, total)
    assert (got_low, got_high) == (low, high)


def test_nan_is_a_value_in_arrays_and_missing_in_text(stead, tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1.0], [np.nan], [3.0]]))
    count, total = stead.results("x.npy", "count:0", "sum:0")
    assert count == 3 and math.isnan(total)
    (tmp_path / "x.csv").write_text("x,y\n1,a\nNaN,b\nNA,c\n,d\n3,e\n")
    count, total, rows = stead.results("x.csv", "count:x", "sum:x", "rows")
    assert (count, total, rows) == (2, 4.0, 5)


def test_flights_against_pandas_and_fsum(stead, flights, frame):
    for column in ["arr_delay", "dep_delay", "air_time", "distance"]:
        values = frame[column].dropna()
        specs = [s.replace(":x", f":{column}") for s in SPECS]
        count, total, mean, var, std, low, high = stead.results(flights, *specs)
        assert count == len(values)
        assert total == math.fsum(values)
        assert mean == pytest.approx(values.mean(), rel=1e-13)
        assert mean == to_float(Fraction(math.fsum(values)) / len(values))
        assert var == pytest.approx(values.var(), rel=1e-12)
        assert std == pytest.approx(values.std(), rel=1e-12)
        assert (low, high) == (values.min(), values.max())


def test_missing_values_are_left_out(stead, flights, frame):
    assert stead.result(flights, "count:arr_delay") == frame["arr_delay"].notna().sum()
    assert frame["arr_delay"].isna().sum() > 9000


def test_a_column_of_nothing(stead, tmp_path):
    (tmp_path / "x.csv").write_text("x,y\nNA,1\nNA,2\n")
    specs = [*SPECS, "rows"]
    got = stead.results("x.csv", *specs, column_type="x=number")
    assert got == [0, 0.0, None, None, None, None, None, 2]
