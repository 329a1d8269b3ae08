"""Secrets in text, found by the plugins of detect-secrets. Nothing is verified over a network.

Enters: text. Leaves: the kinds of secrets in it, never the secrets. Plugins run over a whole text at once, and those whose
patterns need a certain word only over lines that have it: that finds the same as running each over each line, at a fifth of the
cost. Left out is the plugin for public addresses: an address is no secret, and code is full of them.

What is not found: a password without quotes (`PASSWORD=hunter2`), since in code what follows `=` is mostly a call; words of
everyday language; a secret that the end of the text cuts in two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detect_secrets.plugins.base import BasePlugin

WITHHELD = "(withheld: it holds a secret)"

_ALWAYS = {
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "basic_auth": "BasicAuthDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "jwt": "JwtTokenDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "private_key": "PrivateKeyDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
_NEEDS = {
    "artifactory": ("ArtifactoryDetector", ("akc", "ap")),
    "cloudant": ("CloudantDetector", ("cl",)),
    "ibm_cloud_iam": ("IbmCloudIamDetector", ("key", "pwd", "pass", "token")),
    "ibm_cos_hmac": ("IbmCosHmacDetector", ("secret",)),
    "keyword": ("KeywordDetector", ("key", "pass", "pwd", "secret", "contrase")),
    "mailchimp": ("MailchimpDetector", ("-us",)),
    "softlayer": ("SoftlayerDetector", ("sl", "softlayer")),
}
"""Plugins that are dear, with words (in small letters) one of which is in each line where they can find something."""

_ENTROPY = ("Base64HighEntropyString", "HexHighEntropyString")


def kinds(text: str) -> tuple[str, ...]:
    """The kinds of secrets in `text`, sorted: names such as `aws-access-key`. Empty: none was found."""
    return tuple(sorted(set(_found(text)))) if text else ()


def withhold(text: str) -> str:
    """For what people read: the text itself, or, when a secret is in it, that it was withheld and what kind it is.

    Quotes and line ends may be escaped in it, as in JSON and in what Python calls `repr`."""
    found = kinds(text) or (kinds(_plain(text)) if "\\" in text else ())
    return f"{WITHHELD[:-1]}: {', '.join(found)})" if found else text


def _plain(text: str) -> str:
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")


def _found(text: str) -> Iterator[str]:
    plugins = _plugins()
    for kind, plugin in plugins.always:
        if any(_plausible(secret) for secret in plugin.analyze_string(text)):
            yield kind
    for kind, entropy, shortest in plugins.entropy:
        for secret in entropy.analyze_string(text):
            if len(secret) >= shortest and entropy.calculate_shannon_entropy(secret) > entropy.entropy_limit and _plausible(secret):
                yield kind
                break
    lowered = text.lower()
    wanted = [(kind, plugin, words) for kind, plugin, words in plugins.needs if any(word in lowered for word in words)]
    if not wanted:
        return
    for line in text.splitlines():
        lowered = line.lower()
        for kind, plugin, words in wanted:
            if any(word in lowered for word in words) and any(_plausible(secret) for secret in plugin.analyze_string(line)):
                yield kind


def _plausible(secret: str) -> bool:
    """What detect-secrets' own filters would not wave through: placeholders, sequences and identifiers are no secrets."""
    from detect_secrets.filters import heuristic

    return not (
        heuristic.is_templated_secret(secret)
        or heuristic.is_sequential_string(secret)
        or heuristic.is_potential_uuid(secret)
        or heuristic.is_not_alphanumeric_string(secret)
    )


class _Plugins:
    def __init__(self) -> None:
        # The library and what it imports cost a quarter of a second, which processes that never scan need not pay.
        from detect_secrets.plugins import high_entropy_strings

        self.always = [(_name(plugin), plugin) for plugin in (_load(module, name) for module, name in _ALWAYS.items())]
        self.needs = [
            (_name(plugin), plugin, words)
            for plugin, words in ((_load(module, name), words) for module, (name, words) in _NEEDS.items())
        ]
        made = [getattr(high_entropy_strings, name)() for name in _ENTROPY]
        # A string of n characters has at most log2(n) bits each.
        self.entropy = [(_name(plugin), plugin, math.ceil(2**plugin.entropy_limit)) for plugin in made]


@cache
def _plugins() -> _Plugins:
    return _Plugins()


def _load(module: str, name: str) -> BasePlugin:
    import importlib

    plugin: BasePlugin = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), name)()
    return plugin


def _name(plugin: BasePlugin) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(plugin.secret_type).lower()).strip("-")
