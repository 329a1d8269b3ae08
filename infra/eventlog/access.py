"""How a Kafka lets this process in: `SLIPSTREAM_KAFKA_*`, passed on to kafka-python.

Enters: environment variables. Leaves: the client's settings and the codec of what is appended. What can go wrong: a combination
that cannot work is refused with one sentence; passwords are in no sentence, no repr and no log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from kafka import codec
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class KafkaAccess(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="SLIPSTREAM_KAFKA_", frozen=True, extra="ignore", hide_input_in_errors=True)

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] | None = None
    sasl_plain_username: Annotated[str | None, Field(description="of PLAIN and SCRAM")] = None
    sasl_plain_password: SecretStr | None = None
    sasl_kerberos_service_name: Annotated[str | None, Field(description="of GSSAPI; default: kafka")] = None
    ssl_cafile: Annotated[Path | None, Field(description="PEM; default: the system's authorities")] = None
    ssl_certfile: Annotated[Path | None, Field(description="PEM, this client's own, where the broker asks for one")] = None
    ssl_keyfile: Annotated[Path | None, Field(description="PEM; default: the key is in ssl_certfile")] = None
    ssl_password: Annotated[SecretStr | None, Field(description="of an encrypted key")] = None
    ssl_check_hostname: bool = True
    compression: Annotated[Literal["gzip", "zstd", "lz4", "none"], Field(description="of what is appended")] = "gzip"

    @property
    def codec(self) -> str | None:
        """As kafka-python calls it."""
        return None if self.compression == "none" else self.compression

    def client_settings(self) -> dict[str, object]:
        """What kafka-python is told; what was not set is left to its default."""
        told: dict[str, object] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name == "compression" or value is None:
                continue
            told[name] = (
                value.get_secret_value() if isinstance(value, SecretStr) else str(value) if isinstance(value, Path) else value
            )
        return told

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if fault := self._fault():
            raise ValueError(fault)
        return self

    def _fault(self) -> str | None:
        sasl, tls = self.security_protocol.startswith("SASL_"), self.security_protocol.endswith("SSL")
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if stray := sorted(name for name in given if name.startswith("sasl_")) if not sasl else []:
            return f"{stray[0]} is set, but security_protocol is {self.security_protocol}; set it to SASL_SSL (or SASL_PLAINTEXT)"
        if sasl and self.sasl_mechanism is None:
            return (
                f"security_protocol {self.security_protocol} needs a sasl_mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or GSSAPI"
            )
        named = {"sasl_plain_username", "sasl_plain_password"}
        if sasl and self.sasl_mechanism != "GSSAPI" and (missing := sorted(named - given)):
            return f"sasl_mechanism {self.sasl_mechanism} needs {' and '.join(missing)}"
        if sasl and self.sasl_mechanism == "GSSAPI" and (stray := sorted(named & given)):
            return f"{stray[0]} is set, but GSSAPI takes its identity from Kerberos"
        if not tls and (stray := sorted({"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"} & given)):
            return f"{stray[0]} is set, but security_protocol is {self.security_protocol}; set it to SSL or SASL_SSL"
        if self.ssl_certfile is None and (stray := sorted({"ssl_keyfile", "ssl_password"} & given)):
            return f"{stray[0]} is set, but there is no ssl_certfile that it belongs to"
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            file = getattr(self, name)
            if file is not None and not os.access(file, os.R_OK):
                return f"{name}: {file} cannot be read"
        if self.codec and not getattr(codec, f"has_{self.codec}")():
            package = {"zstd": "zstandard"}.get(self.codec, self.codec)
            return f"compression {self.codec} needs the package {package}: install it, or set gzip"
        return None
