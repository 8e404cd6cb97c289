"""hist, quantile, gram, var, std where it is hard: on edges, at the ends of the doubles, within the stated bounds."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from support import same

RNG = np.random.default_rng


def integers(low, high, n=4000, seed=1):
    return RNG(seed).integers(low, high, n, endpoint=True).astype(float)


# Values, and the options of hist: bins, min, max.
HISTOGRAMS = {
    "integers, each an edge": (integers(-50, 50), 100, None, None),
    "integers, every third an edge": (integers(-30, 30), 20, -30, 30),
    "integers that are no edges in binary": (integers(0, 10) / 10, 10, 0, 1),
    "thirds": (integers(-9, 9) / 3, 18, -3, 3),
    "all below zero": (integers(-1000, -900), 7, None, None),
    "ends within the data": (integers(-100, 100), 13, -77, -5),
    "ends that are no edges of numpy's first guess": (integers(1, 7) * 0.1, 6, 0.1, 0.7),
    "one bin": (integers(-5, 5), 1, None, None),
    "one bin, one value": (np.full(9, -2.5), 1, None, None),
    "one value": (np.full(1000, 7.0), 10, None, None),
    "one large value": (np.full(10, 1e15), 4, None, None),
    "min is max": (integers(-3, 3), 10, 1, 1),
    "huge": (RNG(2).uniform(-8e307, 8e307, 3000), 100, None, None),
    "huge, with ends": (np.array([-1.7e308, -8e307, 0.0, 8e307, 1.7e308]), 3, -8e307, 8e307),
    "tiny": (RNG(3).uniform(0, 1e-300, 3000), 50, None, None),
    "few doubles between the ends": (2.0**52 + integers(0, 64), 37, None, None),
    "one double a bin": (2.0**52 + integers(0, 64), 64, None, None),
    "far from zero": (1e9 + integers(0, 10**6) / 1e6, 999, 1e9, 1e9 + 1),
    "many bins": (RNG(4).normal(size=20_000), 100_000, None, None),
    "empty": (np.zeros(0), 10, None, None),
    "empty, with ends": (np.zeros(0), 5, -1, 1),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms_are_those_of_numpy_on_every_edge(stead, tmp_path, name):
    a, bins, low, high = HISTOGRAMS[name]
    counts, edges = np.histogram(a, bins=bins, range=None if low is None else (low, high))
    # Every edge and its neighbours are data as well, where the ends are given.
    if low is not None and len(a):
        inner = np.concatenate([edges, np.nextafter(edges, -math.inf), np.nextafter(edges, math.inf)])
        a = np.concatenate([a, inner])
        counts, edges = np.histogram(a, bins=bins, range=(low, high))
    holes = np.concatenate([a, [math.nan, math.inf, -math.inf, math.inf]])
    RNG(5).shuffle(holes)
    np.save(tmp_path / "a.npy", holes)
    spec = f"hist:0,bins={bins}" + (f",min={float(low)!r},max={float(high)!r}" if low is not None else "")
    got = stead.result("a.npy", spec, chunk="4KiB", threads=2)
    assert got["edges"] == edges.tolist()
    assert got["counts"] == counts.tolist()
    assert got["below"] == (a < edges[0]).sum() + 1 and got["above"] == (a > edges[-1]).sum() + 2
    assert (got["nan"], got["missing"]) == (1, 0)
    # And by the definition alone.
    place = np.searchsorted(edges, a[(a >= edges[0]) & (a <= edges[-1])], side="right") - 1
    assert got["counts"] == np.bincount(np.minimum(place, bins - 1), minlength=bins).tolist()


def test_histograms_that_cannot_be_made(stead, tmp_path):
    np.save(tmp_path / "a.npy", np.array([-1.7e308, 1.7e308]))
    stead.fails("run", "a.npy", "-k", "hist:0", code=1, says=("too wide", "min="))
    np.save(tmp_path / "a.npy", 2.0**52 + integers(0, 64))
    stead.fails("run", "a.npy", "-k", "hist:0,bins=200", code=1, says=("200 bins",))
    stead.fails("run", "a.npy", "-k", "hist:0,min=2,max=1", code=2, says=("hist",))


QS = [0.0, 1e-9, 0.01, 0.1, 1 / 3, 0.5, 0.75, 0.999, 1 - 1e-9, 1.0]
SAMPLES = {
    "normal": RNG(1).normal(size=5001),
    "integers": integers(-3000, 3000),
    "few": np.array([3.0, 1.0, 2.0]),
    "two": np.array([-1e-5, 1e300]),
    "one": np.array([-0.1]),
    "ties": np.repeat([-7.7, 0.0, 3.3, 1e9], [100, 500, 1, 30]),
    "all binades": np.ldexp(RNG(2).uniform(1, 2, 6000), RNG(3).integers(-1070, 1023, 6000)),
    "both signs": RNG(4).choice([-1.0, 1.0], 6000) * np.exp(RNG(5).normal(0, 50, 6000)),
    "subnormal": 5e-324 * integers(-1000, 1000),
    "next to each other": 1.0 + 2.0**-52 * integers(0, 5000),
    "infinities": np.concatenate([RNG(6).normal(size=500), [math.inf] * 3, [-math.inf] * 200]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_quantiles_against_inverted_cdf(stead, tmp_path, name):
    a = SAMPLES[name]
    np.save(tmp_path / "a.npy", a)
    text = ";".join(repr(q) for q in QS)
    errors = {"": 2.0**-10, ",error=0.1": 0.1, ",error=1e-4": 1e-4, ",error=0.00006103515625": 2.0**-14, ",exact": 0.0}
    answers = stead.results("a.npy", *(f"quantile:0,q={text}{e}" for e in errors), chunk="4KiB", threads=2)
    s, n = np.sort(a), len(a)
    for q in QS:
        true = float(np.quantile(a, q, method="inverted_cdf"))
        # By the definition, too: at least q n values, the product rounded as NumPy rounds it.
        assert true == s[max(math.ceil(q * n) - 1, 0)]
        for (option, error), answer in zip(errors.items(), answers, strict=True):
            got = answer[repr(q)]
            if math.isinf(true) or not error:
                assert got == true, (option, q)
                continue
            # Cut towards zero, and never beyond the data.
            bound = max(error * abs(true), 2.0**-1022 * error)
            assert abs(got - true) <= bound, (option, q, got, true)
            assert s[0] <= got <= s[-1], (option, q)
            assert abs(got) <= abs(true) or got in (s[0], s[-1]), (option, q)


def test_a_quantile_of_nan_is_nan(stead, tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.0, math.nan, 3.0]))
    assert all(math.isnan(v) for v in stead.results("a.npy", "quantile:0", "quantile:0,exact"))


GRAMS = {
    "one scale": RNG(1).normal(size=(3000, 4)),
    "many scales": np.ldexp(RNG(2).uniform(-1, 1, (2000, 4)), RNG(3).integers(-400, 400, (2000, 4))),
    "cancelling": np.concatenate([np.ones((500, 3)) * [1e8, 3.0, 1e-8], np.ones((500, 3)) * [-1e8, 3.0, 1e-8], [[0.1, 0.1, 0.1]]]),
    "integers": integers(-10**6, 10**6, 3000).reshape(1000, 3),
    "one row": np.array([[0.1, 0.2, 0.3]]),
    "subnormal": 1e-160 * RNG(4).normal(size=(500, 2)),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", GRAMS)
def test_gram_keeps_its_bounds_against_exact_products(stead, tmp_path, name, order):
    a = GRAMS[name]
    np.save(tmp_path / "a.npy", np.asarray(a, order=order))
    rows, exactly = stead.results("a.npy", "gram:*", "gram:*,exact", chunk="4KiB", threads=2)
    exact = [[Fraction(v) for v in column] for column in a.T.tolist()]
    # Half the least subnormal for each product that underflows.
    lost = Fraction(len(a)) * Fraction(5e-324) / 2
    for i, x in enumerate(exact):
        for j, y in enumerate(exact):
            products = [p * q for p, q in zip(x, y, strict=True)]
            size = sum(map(abs, products))
            value = rows["matrix"][i][j]
            bound = Fraction(2) ** -45 * size + Fraction(math.ulp(value)) / 2 + lost
            assert abs(Fraction(value) - sum(products)) <= bound, (i, j)
            # Rounded once, from the exact sum of the exact products.
            assert exactly["matrix"][i][j] == float(sum(products)), (i, j)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("name", ["normal", "integers", "few", "two", "ties", "both signs", "subnormal", "next to each other"])
def test_var_and_std_against_statistics(stead, tmp_path, name, ddof):
    a = SAMPLES[name].tolist()
    if name == "two":
        a = [-1e-5, 1e150]
    np.save(tmp_path / "a.npy", np.array(a))
    var, std = stead.results("a.npy", f"var:0,ddof={ddof}", f"std:0,ddof={ddof}", chunk="4KiB", threads=2)
    exact = (statistics.pvariance if ddof == 0 else statistics.variance)([Fraction(v) for v in a])
    assert same(var, exact.numerator / exact.denominator)
    # The standard deviation within an ulp of the root of the exact variance.
    got = Fraction(std)
    low, high = (Fraction(math.nextafter(std, t)) for t in (-math.inf, math.inf))
    assert got == 0 == exact or low * low < exact < high * high


def test_var_of_one_value(stead, tmp_path):
    np.save(tmp_path / "a.npy", np.array([3.25]))
    got = stead.results("a.npy", "var:0", "std:0", "var:0,ddof=0", "std:0,ddof=0")
    assert got == [None, None, 0.0, 0.0]
