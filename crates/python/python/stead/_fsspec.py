"""`stead://` for fsspec: what lies in dataspaces opens by its name, in pandas, dask, xarray and others."""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone

try:
    from fsspec.callbacks import DEFAULT_CALLBACK
    from fsspec.compression import compr
    from fsspec.core import get_compression
    from fsspec.implementations.local import trailing_sep
    from fsspec.spec import AbstractFileSystem
    from fsspec.utils import isfilelike, stringify_path
except ImportError as e:
    raise ImportError("stead.FileSystem needs fsspec: pip install 'stead[fsspec]'") from e

from . import _stage, _stead
from ._errors import UsageError, make
from ._files import Compressed, ObjectFile, Reading, Text, Writing, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

#: Requests to object stores at once.
AT_ONCE = 16
#: What makes a name a pattern of several names, for transfers.
WILD = frozenset("*?[")
HOW = {"wb": "replace", "xb": "new", "ab": "append"}


class FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The file system `stead://` of fsspec: `stead://nvme0/run1/data.csv` is `run1/data.csv` in the dataspace `nvme0`.

        >>> pandas.read_csv("stead://nvme0/run1/data.csv")
        >>> fs = stead.FileSystem(dataspaces={"fast": "/scratch/me"})
        >>> fs.ls("fast/run1", detail=False)

    `stead://` lists the dataspaces, which are folders or buckets. No path leads out of one: paths have no `..`, and links below its folder
    are listed and not followed. A file that is written appears as a whole when it is closed, in place of the one that had its name,
    or not at all: `with` discards it if its block ends by an error, and so does a file that is never closed. Folders that it needs are made.
    `cp`, `mv`, `rm`, `get` and `put` are transfers of `stead.stage`, whole trees one each, with checksums, and resumed if they are
    begun again. What is opened for reading from a bucket is read ahead in blocks (`block_size`, 5 MiB); what is written goes in parts of 16 MiB,
    and `a` is an error.

    Times of `created` are those of the last change of anything, which is what all systems keep; objects have the time when they came. Files
    of folders are those of Python, with a descriptor. A function of `fsspec.AbstractFileSystem` that is not below is made of these.

    Needs fsspec (`pip install 'stead[fsspec]'`).

    Args:
        dataspaces: Folders of dataspaces, or URLs of buckets, before those that are configured in `stead.toml`.
        durable: Files are on their device before they get their names.
        state: The folder of the journal of transfers, in place of that of the user.
        options: Those of `fsspec.AbstractFileSystem`.

    Raises:
        FormatError: A `stead.toml` is wrong.
        UsageError: A dataspace that is none; later, a path that leads out of its dataspace.
        NotFoundError: There is no such dataspace, or no such name; also a `FileNotFoundError`.
        PermissionDeniedError: The system refused it, or a link is on the way; also a `PermissionError`.
        FileExistsError, IsADirectoryError, NotADirectoryError, OSError: As of Python's own functions for files.
    """

    protocol = "stead"
    root_marker = ""

    def __init__(
        self,
        dataspaces: Mapping[str, str | os.PathLike[str]] | None = None,
        durable: bool = True,
        state: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.durable, self._state = durable, state
        self._spaces = {name: os.fspath(path) for name, path in (dataspaces or {}).items()}
        self._tree = _stead.Tree(_stage.given(self._spaces))

    @property
    def fsid(self) -> str:
        """`stead`: names mean the same wherever the same dataspaces are configured."""
        return "stead"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for mark in ("stead://", "stead::"):
            path = path.removeprefix(mark)
        return path.strip("/")

    def _split(self, path: Any) -> tuple[str, str]:
        """Dataspace and path below it."""
        space, _, below = self._strip_protocol(path).partition("/")
        return space, below

    def _below(self, path: Any) -> tuple[str, str]:
        """The same of something in a dataspace."""
        space, below = self._split(path)
        if not below:
            raise make("usage", f"'{self._strip_protocol(path)}' is no name in a dataspace", hint="stead://DATASPACE/PATH")
        return space, below

    def _instead(self, path: Any, e: UsageError, folder: int, other: int | None = None) -> Exception:
        """What Python says of the same, if a folder has the name, or something else."""
        if self.isdir(path):
            return OSError(folder, e.args[0], path)
        return OSError(other, e.args[0], path) if other is not None and self.exists(path) else e

    # What there is.

    def _told(self, path: str, told: tuple[Any, ...]) -> dict[str, Any]:
        _, kind, size, modified, changed, mode, number, names, user, group = told
        size = 0 if kind == "directory" else size
        return {
            "name": path, "type": kind, "size": size, "mtime": modified, "created": changed, "mode": mode, "ino": number,
            "nlink": names, "uid": user, "gid": group, "islink": kind == "link",
        }  # fmt: skip

    def info(self, path: Any, **options: Any) -> dict[str, Any]:
        """What a name leads to: `name`, `type` (`file`, `directory`, `link`, `other`), `size` in bytes, `mtime` and `created` in seconds
        since 1970, `mode`, `uid`, `gid`, `ino`, `nlink`. Of a bucket it takes one or two requests."""
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "type": "directory", "size": 0}
        return self._told(path, self._tree.info(*self._split(path)))

    def ls(self, path: Any, detail: bool = True, **options: Any) -> list[Any]:
        """What lies in a folder, or what a file is; with `detail`, as `info` has it. Of a bucket it takes a request for each thousand names."""
        path = self._strip_protocol(path)
        if not path:
            found = [{"name": name, "type": "directory", "size": 0} for name in self._tree.spaces()]
        else:
            folder, names = self._tree.list(*self._split(path))
            found = [self._told(f"{path}/{told[0]}" if folder else path, told) for told in names]
        return found if detail else [one["name"] for one in found]

    def created(self, path: Any) -> datetime:
        """When anything of it changed last."""
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: Any) -> datetime:
        """When its bytes changed last."""
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    # Files.

    def open(self, path: Any, mode: str = "rb", block_size: int | None = None, cache_options: Any = None, compression: Any = None, **options: Any) -> Any:
        """Opens a file to be read (`r`), written (`w`), made (`x`) or appended to (`a`), as a whole; as bytes (`b`) or text.

        Args:
            path: Its name.
            mode: As of Python's own `open`, without `+`.
            block_size: Of an object, bytes that are read at a time.
            cache_options: Of an object, as fsspec has them.
            compression: As fsspec has it: `infer` goes by the name.
            options: `encoding`, `errors` and `newline` of text; `cache_type` of an object; `size`, bytes that a file will have if that is known, which a
                quota of the dataspace may refuse.
        """
        if "b" not in mode:
            text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
            return Text(self.open(path, mode.replace("t", "") + "b", block_size, cache_options, compression, **options), **text)
        how = get_compression(stringify_path(path), compression)
        if how is None or mode == "rb":
            return super().open(path, mode, block_size, cache_options, compression, **options)
        file = self.open(path, mode, block_size, cache_options, **options)
        return Compressed(compr[how](file, mode=mode[0]), file)

    def _opened(self, path: Any) -> _stead.Opened:
        try:
            return self._tree.open(*self._below(path))
        except UsageError as e:
            raise self._instead(path, e, errno.EISDIR) from None

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, cache_options: Any = None,
        cache_type: str | None = None, size: int | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        more = {"block_size": block_size, "cache_options": cache_options, "cache_type": cache_type or "readahead"}
        if mode == "rb":
            opened = self._opened(path)
            descriptor = opened.take()
            if descriptor is None:
                return ObjectFile(self, path, mode, opened=opened, size=opened.size, **more)
            return Reading(path, opened.size, descriptor)
        if mode not in HOW:
            raise ValueError(f"files are read (r), written (w, x) or appended to (a), as a whole: mode {mode!r} is none of these")
        try:
            writing = self._tree.create(*self._below(path), HOW[mode], size)
        except UsageError as e:
            raise self._instead(path, e, errno.EISDIR, errno.EEXIST if mode == "xb" else None) from None
        descriptor = writing.descriptor()
        if descriptor is None:
            return ObjectFile(self, path, mode, writing=writing, autocommit=autocommit, **more)
        return Writing(path, writing, descriptor, autocommit, self.durable)

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **options: Any) -> None:
        """Writes bytes to a file, of which it is known how many they are: a quota that leaves no room for them refuses it before anything
        is made. With the mode `create` what has the name is an error."""
        with self.open(path, "xb" if mode == "create" else "wb", size=memoryview(value).nbytes, **options) as file:
            file.write(value)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Bytes of a file, from `start` to `end`, which count from its end if they are negative: of an object one request."""
        return part(self._opened(path), start, end)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        """Bytes of a file; of a list, a pattern or a tree those of all files by their names, objects 16 at once. What goes wrong is raised, or
        left out (`omit`), or in place of the bytes (`return`)."""
        paths = self.expand_path(path, recursive=recursive, **options)
        if len(paths) == 1 and not isinstance(path, list) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0])
        found = self.cat_ranges(paths, None, None, on_error="raise" if on_error == "raise" else "return")
        return {name: one for name, one in zip(paths, found, strict=True) if on_error != "omit" or not isinstance(one, Exception)}

    def cat_ranges(
        self, paths: Any, starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **options: Any
    ) -> list[Any]:
        """Ranges of files, in the order in which they are asked for. Each file is opened once; of objects 16 ranges are read at once. What
        goes wrong is in place of the bytes, or is raised if `on_error` is `raise`."""
        if not isinstance(paths, list):
            raise TypeError("paths are a list")
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(starts) == len(ends) == len(paths):
            raise ValueError("as many starts and ends as paths")
        groups: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            groups.setdefault(self._strip_protocol(path), []).append(i)
        found: dict[int, Any] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # Of objects nothing is open meanwhile; files are open one after the other.
            far = {space: attempt(self._tree.is_bucket, space) is True for space in {self._split(path)[0] for path in groups}}
            asked = {path: pool.submit(attempt, self._opened, path) for path in groups if far[self._split(path)[0]]}
            for path, places in groups.items():
                opened = asked[path].result() if path in asked else attempt(self._opened, path)
                for i in places:
                    if isinstance(opened, Exception):
                        found[i] = opened
                    else:
                        ends_at = (opened, starts[i], ends[i])
                        found[i] = pool.submit(part, *ends_at) if opened.is_object else attempt(part, *ends_at)
            found = {i: attempt(one.result) if isinstance(one, Future) else one for i, one in found.items()}
        bad = [found[i] for i in range(len(paths)) if isinstance(found[i], Exception)]
        if bad and on_error == "raise":
            raise bad[0]
        return [found[i] for i in range(len(paths))]

    # Folders.

    def mkdir(self, path: Any, create_parents: bool = True, **options: Any) -> None:
        """Makes a folder, durably. In a bucket it is there as soon as something lies in it: nothing is done.

        Raises:
            FileExistsError: Something has the name.
            FileNotFoundError: What it is to lie in is not there, without `create_parents`.
        """
        space, below = self._split(path)
        try:
            made = bool(space) and self._tree.make_folder(space, below, create_parents)
        except UsageError as e:
            told = self._instead(path, e, errno.EEXIST, errno.EEXIST)
            if told is e and self._is_below_file(path):
                told = OSError(errno.ENOTDIR, e.args[0], path)
            raise told from None
        if not made:
            raise FileExistsError(errno.EEXIST, "there is something of this name already", path)

    def _is_below_file(self, path: Any) -> bool:
        steps = self._strip_protocol(path).split("/")
        return any(self.isfile("/".join(steps[:i])) for i in range(2, len(steps)))

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """As `mkdir`, with the folders that it lies in; with `exist_ok` it may be there."""
        try:
            self.mkdir(path)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: Any) -> None:
        """Removes an empty folder.

        Raises:
            OSError: It is not empty.
            NotADirectoryError: It is none.
        """
        try:
            gone = self._tree.remove_folder(*self._below(path))
        except UsageError as e:
            raise self._instead(path, e, errno.ENOTEMPTY, errno.ENOTDIR) from None
        if not gone:
            raise make("not_found", "there is no such folder", path=self._strip_protocol(path))

    # Transfers.

    def _name(self, path: Any) -> str:
        space, below = self._split(path)
        return f"{space}://{below}".replace("$", "$$")

    def _base(self, path: str) -> str:
        """The last step of a name in a dataspace; nothing if what lies in it is meant."""
        return "" if trailing_sep(path) else self._split(path)[1].rpartition("/")[2]

    def _stage(self, source: str | list[str], target: str | None, action: str = "copy", exists: str = "replace") -> None:
        options = {"durable": self.durable, "dataspaces": self._spaces, "state": self._state}
        done = _stage.stage(source, target, action=action, exists=exists, **options).wait(progress=False)  # type: ignore[arg-type]
        if done.failed:
            at, why = done.failures[0]
            raise make("io", f"{done.failed} of {done.files} names could not be done, the first: {why}", path=at)

    def _is_tree(self, source: Any, target: Any, options: dict[str, Any], is_dir: Callable[[Any], bool]) -> bool:
        """True of what one transfer can do as a whole."""
        if not (isinstance(source, str) and isinstance(target, str)) or not options.pop("recursive", False):
            return False
        plain = options.pop("maxdepth", None) is None and options.pop("on_error", None) in (None, "ignore", "raise")
        return plain and not WILD & set(source + target) and is_dir(source)

    def copy(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, on_error: str | None = None, **options: Any) -> None:
        """Copies files and trees by a transfer: within a bucket the store does it, within a file system blocks are shared where that can be.
        What the target has is replaced. A target that is a folder, or has a `/` at its end, is what sources go into; of a source with one, what
        lies in it."""
        asked = {"recursive": recursive, "maxdepth": maxdepth, "on_error": on_error}
        if self._is_tree(path1, path2, asked, self.isdir):
            self._to_tree(self._name(path1), self._base(path1), path2)
        else:
            super().copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error=on_error, **options)

    def _to_tree(self, source: str, base: str, target: str) -> None:
        final = self._strip_protocol(target)
        if base and (trailing_sep(target) or self.isdir(target)):
            final = f"{final}/{base}"
        # Also of a folder in which nothing lies.
        self.makedirs(final, exist_ok=True)
        self._stage(inside(source), self._name(final))

    def cp_file(self, path1: Any, path2: Any, **options: Any) -> None:
        """Copies a file by a transfer; makes the folder that a folder is to become."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        elif WILD & set(path1 + path2):
            # For transfers it would be a pattern.
            with self.open(path1) as source, self.open(path2, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        else:
            self._stage(self._name(path1), self._name(path2))

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, callback: Any = DEFAULT_CALLBACK, maxdepth: int | None = None, **options: Any) -> None:
        """Copies files and trees out of dataspaces by a transfer. What the target has is replaced; where things go is as for `copy`."""
        if self._is_tree(rpath, lpath, {"recursive": recursive, "maxdepth": maxdepth}, self.isdir):
            into = trailing_sep(lpath) or os.path.isdir(lpath)
            final = os.path.abspath(os.path.join(lpath, self._base(rpath) if into else ""))
            os.makedirs(final, exist_ok=True)
            self._stage(inside(self._name(rpath)), final)
        else:
            super().get(rpath, lpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **options)

    def get_file(self, rpath: Any, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **options: Any) -> None:
        """Copies a file out of a dataspace by a transfer; makes the folder that a folder is to become. `callback` is told at the end."""
        if isfilelike(lpath) or outfile is not None or WILD & set(f"{rpath}{lpath}"):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **options)
            return
        info = self.info(rpath)
        if info["type"] == "directory":
            os.makedirs(lpath, exist_ok=True)
            return
        callback.set_size(info["size"])
        self._stage(self._name(rpath), os.path.abspath(lpath))
        callback.absolute_update(info["size"])

    def put(self, lpath: Any, rpath: Any, recursive: bool = False, callback: Any = DEFAULT_CALLBACK, maxdepth: int | None = None, **options: Any) -> None:
        """Copies files and trees into dataspaces by a transfer. What the target has is replaced; where things go is as for `copy`."""
        if self._is_tree(lpath, rpath, {"recursive": recursive, "maxdepth": maxdepth}, os.path.isdir):
            source = os.path.abspath(lpath)
            self._to_tree(source, "" if trailing_sep(lpath) else os.path.basename(source), rpath)
        else:
            super().put(lpath, rpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **options)

    def put_file(self, lpath: Any, rpath: Any, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **options: Any) -> None:
        """Copies a file into a dataspace by a transfer; makes the folder that a folder is to become. `callback` is told at the end. With
        the mode `create` what the target has is an error."""
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(errno.EEXIST, "there is something of this name already", rpath)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        if WILD & set(f"{rpath}{lpath}"):
            super().put_file(lpath, rpath, callback=callback, mode=mode, **options)
            return
        size = os.path.getsize(lpath)
        callback.set_size(size)
        self._stage(os.path.abspath(lpath), self._name(rpath), exists="refuse" if mode == "create" else "replace")
        callback.absolute_update(size)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Moves a file or a tree by a transfer: within a file system that is a rename; else sources go when their copies are durable, if nobody
        has changed them since."""
        single = isinstance(path1, str) and isinstance(path2, str) and maxdepth is None and not WILD & set(path1 + path2)
        if not single:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if source == target:
            return
        tree = self.info(source)["type"] == "directory"
        if tree and not recursive:
            raise IsADirectoryError(errno.EISDIR, "this is a folder: recursive=True moves it", source)
        self._below(source)
        if (trailing_sep(path2) or self.isdir(target)) and not (tree and trailing_sep(path1)):
            target = f"{target}/{source.rpartition('/')[2]}"
        if not tree or not self.exists(target):
            self._stage(self._name(source), self._name(target), "move")
            return
        self._stage(inside(self._name(source)), self._name(target), "move")
        self._stage(self._name(source), None, "remove")

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files and, if `recursive`, trees: several, and trees, by one transfer. Links are removed, and not followed."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        names: list[str] = []
        for one in [path] if isinstance(path, (str, os.PathLike)) else path:
            one = self._strip_protocol(one)
            names += self.glob(one) if WILD & set(one) and not self.exists(one) else [one]
        kinds: dict[str, str] = {}
        for name in names:
            kinds[name] = self.info(name)["type"]
            if kinds[name] == "directory" and not recursive:
                raise IsADirectoryError(errno.EISDIR, "this is a folder: recursive=True removes it", name)
            self._below(name)
        # What lies in a folder goes with it.
        within = {name for name in names if any(name.startswith(other + "/") for other in names)}
        left = [name for name in dict.fromkeys(names) if name not in within]
        if len(left) == 1 and kinds[left[0]] != "directory":
            # Of one there is nothing to go on with. It may have gone meanwhile, as names that a transfer is to remove may.
            self._tree.remove_file(*self._below(left[0]), self.durable)
        elif left:
            self._stage([self._name(name) for name in left], None, "remove")

    def rm_file(self, path: Any) -> None:
        """Removes a file."""
        self.rm(path)

    def _rm(self, path: Any) -> None:
        self.rm(path)


def inside(source: str) -> str:
    """What lies in a folder, for transfers."""
    return source if source.endswith("/") else source + "/"


def part(opened: _stead.Opened, start: int | None, end: int | None) -> bytes:
    """Bytes of a file, by places as slices have them."""
    start, end, _ = slice(start, end).indices(opened.size)
    return opened.read(start, max(start, end))
