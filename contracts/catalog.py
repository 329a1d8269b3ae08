"""The plugin catalog: a plugin is one file in a folder, and the folder is the list.

`Catalog("reward extractor", "rewarding.extractors")` imports every module of that package on first use; each registers itself with
`@catalog.add("name")`. Third parties add theirs by an entry point of the group `slipstream.<package>`. An unknown name is
answered with the known ones.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from contracts.errors import UnknownName

Plugin = TypeVar("Plugin")


class Catalog(Generic[Plugin]):
    def __init__(self, what: str, package: str) -> None:
        self._what = what
        self._package = package
        self._plugins: dict[str, Plugin] = {}
        self._loaded = False

    def add(self, name: str) -> Callable[[Plugin], Plugin]:
        def register(plugin: Plugin) -> Plugin:
            if self._plugins.setdefault(name, plugin) is not plugin:
                raise ValueError(f"two plugins call themselves {self._what} {name!r}")
            return plugin

        return register

    def get(self, name: str) -> Plugin:
        self._load()
        try:
            return self._plugins[name]
        except KeyError:
            raise UnknownName(f"no {self._what} is called {name!r}; there are: {', '.join(self.names())}") from None

    def names(self) -> list[str]:
        self._load()
        return sorted(self._plugins)

    def _load(self) -> None:
        if self._loaded:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")
        for point in entry_points(group=f"slipstream.{self._package}"):
            self._plugins.setdefault(point.name, point.load())
        self._loaded = True
