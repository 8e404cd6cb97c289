"""What administrators say to the daemon of a node."""

from __future__ import annotations

import json
import os

from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ._daemon import Daemon


class Admin:
    """What administrators say to a daemon: root, members of the group `stead`, and who has a daemon of its own. Everything stays as it was set
    when the daemon is started again. Whoever is none gets a `PermissionDeniedError`.
    """

    __slots__ = ("_daemon",)

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def _ask(self, what: str, **said: Any) -> Any:
        return json.loads(self._daemon._open.admin(json.dumps({what: said})))

    def add_dataspace(self, name: str, path: str | os.PathLike[str], **settings: str | int | bool) -> None:
        """Adds a dataspace for all users.

        Args:
            name: Its name.
            path: Its folder, or the URL of its bucket.
            settings: Keys of `stead.toml`, such as `quota="1TB"`, `jobs=True`, `mode="2770"`.

        Raises:
            UsageError: There is one of this name, or a setting makes no sense.
        """
        self._ask("add", name=name, set=_settings({"path": os.fspath(path), **settings}))

    def update_dataspace(self, name: str, **settings: str | int | bool | None) -> None:
        """Changes a dataspace for all users. Transfers that have begun go on as they were.

        Args:
            name: Its name.
            settings: Keys of `stead.toml`; None takes one away.

        Raises:
            UsageError: There is none of this name, or a setting makes no sense.
        """
        self._ask("update", name=name, set=_settings(settings))

    def remove_dataspace(self, name: str) -> None:
        """Takes a dataspace away. What lies in it stays.

        Args:
            name: Its name.

        Raises:
            UsageError: There is none of this name.
        """
        self._ask("remove", name=name)

    def reset_dataspace(self, name: str) -> None:
        """Forgets what was set of a dataspace: it is as `/etc/stead/stead.toml` says, or none.

        Args:
            name: Its name.

        Raises:
            UsageError: Nothing was set of it.
        """
        self._ask("reset", name=name)

    def dataspaces(self) -> dict[str, dict[str, str]]:
        """Dataspaces of all users by name, with their settings as text."""
        return {space["name"]: space["set"] for space in self._ask("dataspaces")["dataspaces"]}

    def add_job(self, job: str | int, user: str | int, dataspaces: Iterable[str] = ()) -> None:
        """Adds a job, or gives it other dataspaces.

        Args:
            job: Its name.
            user: Whose it is, by name or number.
            dataspaces: What its processes may use.

        Raises:
            UsageError: There is no such dataspace or user, or the job is another user's.
        """
        self._ask("job", job=str(job), user=str(user), dataspaces=list(dataspaces))

    def remove_job(self, job: str | int) -> None:
        """Says that a job is over: its transfers are cancelled, and what its user has left in its dataspaces of jobs is removed, but for what
        is kept. This is done after the return.

        Args:
            job: Its name.

        Raises:
            UsageError: There is none of this name.
        """
        self._ask("unjob", job=str(job))

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs: `job`, `user` (a number), `dataspaces`, `processes`."""
        found: list[dict[str, Any]] = self._ask("jobs")["jobs"]
        return found

    def add_process(self, job: str | int, pid: int) -> None:
        """Says that a process, and those that it begins, are of a job.

        Args:
            job: Its name.
            pid: The number of the process.

        Raises:
            UsageError: There is no such job.
            NotFoundError: There is no such process.
        """
        self._ask("process", job=str(job), pid=pid)

    def remove_process(self, pid: int) -> None:
        """Says that a process is of no job any more.

        Args:
            pid: The number of the process.

        Raises:
            UsageError: It was not named for one.
        """
        self._ask("unprocess", pid=pid)

    def drain(self) -> None:
        """Has the daemon take no transfers and begin none; what is under way ends, what waits stays."""
        self._ask("drain")

    def open(self) -> None:
        """Has a daemon that was drained take transfers again, and go on with those that wait."""
        self._ask("open")

    def stats(self) -> dict[str, Any]:
        """What the daemon does: `drained`, and `users`, a list with `user` (a number), `connections`, `running`, `waiting`, `finished`, `failed`,
        `bytes` (moved) and `rate` (bytes a second)."""
        found: dict[str, Any] = self._ask("stats")["stats"]
        return found

    def manage(self, user: str | int) -> Daemon:
        """The daemon as it is for the transfers of another user: what is about these, such as `transfers`, `transfer` and `resume`.

            >>> theirs = stead.daemon().admin.manage("ada")
            >>> theirs.transfer(7).cancel()

        Anything else raises a `PermissionDeniedError`: with the rights of others an administrator does what these have asked for, and no more.

        Args:
            user: Whose, by name or number.

        Raises:
            UsageError: There is no user of this name, or the daemon serves another one alone.
            NotFoundError: This one has no transfers here, or no user has this number.
        """
        from ._daemon import Daemon

        return Daemon(self._daemon._open.manage(str(user)))


def _settings(settings: dict[str, Any]) -> dict[str, str]:
    def text(key: str, value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if value is None:
            return ""
        if key == "mode" and not isinstance(value, str):
            raise make("usage", "rights are text", hint='write mode="2770"')
        return str(value)

    return {key: text(key, value) for key, value in settings.items()}
