"""Makes disq 0.0.4 importable: `from old_disq import disq`.

The library names a parameter `async`, a keyword since Python 3.7, and keeps its counters
in blist, which no longer builds. Both are put right while it is imported; what it sends
and how it reads the answers stays its own.
"""

import bisect
import importlib.abc
import importlib.machinery
import sys
import types


class SortedList(list):
    """As much of `blist.sortedlist` as disq uses."""

    def add(self, item):
        bisect.insort(self, item)

    def bisect(self, item):
        return bisect.bisect_right(self, item)


class OldSource(importlib.machinery.SourceFileLoader):
    """Reads the package's source with the word that became a keyword replaced."""

    def get_data(self, path):
        source = super().get_data(path)
        if path.endswith(".py"):
            source = source.replace(b"async=False", b"async_=False").replace(
                b"if async:", b"if async_:"
            )
        return source

    def get_code(self, name):
        return self.source_to_code(self.get_data(self.path), self.path)


class OldPackage(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "disq":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = OldSource(spec.loader.name, spec.loader.path)
        return spec


sys.modules["blist"] = types.SimpleNamespace(sortedlist=SortedList)
sys.meta_path.insert(0, OldPackage())

import disq  # noqa: E402, F401
