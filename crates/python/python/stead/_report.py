"""Reports: results by specification, the plan, what it took."""

from __future__ import annotations

from collections.abc import Mapping

from ._stead import Report as Native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import pandas as pd


class Report(Mapping):  # type: ignore[type-arg]
    """What a run answered: a mapping from specification to result, in the order asked for.

    `r["mean:x"]`, `r[stead.mean("x")]`, `r[my_kernel]`. A result is a number, None (no answer, such as the mean of
    nothing), a text, a NumPy array (float64, or int64 for counts), or a dict of these; with `by`, a dict from group to
    result. Floats have the bits that were computed.
    """

    def __init__(self, native: Native, types: dict[str, str], own: list[Any]) -> None:
        self._native = native
        self._types = types
        self._own = own
        self._results: dict[str, Any] | None = None

    @property
    def results(self) -> dict[str, Any]:
        """All results by specification."""
        if self._results is None:
            self._results = self._native.results()
        return self._results

    def __getitem__(self, kernel: Any) -> Any:
        key = self._key(kernel)
        try:
            return self.results[key]
        except KeyError:
            raise KeyError(f"{key!r} was not asked for; there are: {', '.join(self.results)}") from None

    def _key(self, kernel: Any) -> str:
        return kernel if isinstance(kernel, str) else str(getattr(kernel, "name", kernel))

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.specs())

    def __len__(self) -> int:
        return len(self._native.specs())

    def __contains__(self, kernel: object) -> bool:
        return self._key(kernel) in self._native.specs()

    @property
    def plan(self) -> dict[str, Any]:
        """What was decided: `format`, `files`, `bytes`, `threads`, `vectors`, `chunk_bytes`, `memory_bytes`, `where`, `by`,
        `kernels` (what each answers, reads, and how many passes it took), `scan` (extents, engine, columns)."""
        import json

        plan: dict[str, Any] = json.loads(self._native.plan())
        return plan

    @property
    def metrics(self) -> dict[str, Any]:
        """What it took: `seconds`, `cpu_seconds`, `passes`, `bytes_read`, `rows`, `rows_kept`, `rows_skipped`,
        `integers_rounded`, `bytes_per_second`, `core_seconds_per_gb`, `peak_memory_bytes` (of the process)."""
        import json

        metrics: dict[str, Any] = json.loads(self._native.metrics())
        return metrics

    def to_json(self) -> str:
        """The report as `stead run --format json` prints it."""
        return self._native.json()

    def explain(self) -> str:
        """The plan and what it took, for people."""
        return self._native.explain()

    def to_svg(self) -> str | None:
        """Histograms and single numbers by group as a picture (SVG); None if there are none."""
        return self._native.svg()

    def to_pandas(self, kernel: Any = None) -> pd.DataFrame:
        """Results as a data frame.

        Without `kernel`: one row (with `by`: one row a group, the groups as index) and one column for each kernel.
        Results that have named numbers, such as those of `mean:*`, take a column for each, `mean:*.x`; other
        structured results stay as they are in their cell.

        With one: its result in full. Inner products with the columns as labels; centres of clusters with their sizes,
        one a row; bins of a histogram with `left`, `right`, `count`; lines that were found, one a row. With `by` the
        groups are the first level of the index.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            from ._frames import frame, frame_of
        except ModuleNotFoundError as e:
            if e.name != "pandas":
                raise
            hint = "to_pandas needs pandas: pip install pandas, or in the clone pip install '.[pandas]'"
            raise ModuleNotFoundError(f"{e}\n  hint: {hint}", name=e.name) from None

        if kernel is None:
            return frame(self)
        return frame_of(self, self._key(kernel))

    def __repr__(self) -> str:
        return self._native.text().strip("\n")

    def _repr_html_(self) -> str:
        from ._display import report

        return report(self)
