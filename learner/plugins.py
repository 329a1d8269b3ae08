"""Build a policy's loss and advantage from their names and options.

Enters: the catalog and what the policy file says. Leaves: a plugin, which is a frozen record whose fields are its options. What
can go wrong: `StartError` that names the policy, the plugin and the option; `UnknownName` with the names that exist.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from contracts.catalog import Catalog
from contracts.errors import StartError
from contracts.policy import Plugin
from contracts.record import Record, first_fault

Built = TypeVar("Built", bound=Record)


def build(catalog: Catalog[type[Built]], plugin: Plugin, policy: str) -> Built:
    found = catalog.get(plugin.name)
    try:
        return found.model_validate(plugin.options)
    except ValidationError as error:
        raise StartError(f"policy {policy}: options of {plugin.name}: {first_fault(error)}") from error
