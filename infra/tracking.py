"""MLflow: runs with their metrics, versions with their weights, aliases that mirror the ledger.

Enters: records. Leaves: what MLflow shows. The SQL rows are the truth (aliases have no compare-and-set and no history), so each
function may be repeated and may fail: it raises `Retry`, and the caller's mirror catches up later. MLflow is imported on first
use; it takes seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from contracts.checkpoint import Checkpoint
from contracts.errors import Retry
from infra.settings import Settings

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_VERSION_TAG = "slipstream.version"


class Tracking:
    """One registered model per policy; each of our versions is one of its versions, found by tag."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.mlflow
        self._artifacts = (settings.home / "mlflow-artifacts").resolve()
        self._lock = settings.home / "mlflow.lock"
        self._client: MlflowClient | None = None

    def register(self, checkpoint: Checkpoint, folder: Path, params: Mapping[str, str]) -> str:
        """Log the run and the weights and register the version; answers MLflow's number. Repeated, it answers the same."""
        with _mirrored():
            found = self._find(checkpoint)
            if found is not None:
                return found
            run = self._run(checkpoint)
            run_id = run.info.run_id
            for name, setting in params.items():
                self._mlflow.log_param(run_id, name, setting)
            for name, figure in checkpoint.metrics.items():
                self._mlflow.log_metric(run_id, name, figure)
            self._mlflow.log_artifacts(run_id, str(folder), "weights")
            made = self._mlflow.create_model_version(
                name=checkpoint.policy,
                source=f"runs:/{run_id}/weights",
                run_id=run_id,
                tags={_VERSION_TAG: checkpoint.version, "slipstream.parent": checkpoint.parent or ""},
            )
            self._mlflow.set_terminated(run_id)
            return str(made.version)

    def mirror(self, policy: str, version: str, state: str, aliases: Mapping[str, bool]) -> None:
        """Show the ledger's state as a tag, and set or clear the aliases named."""
        with _mirrored():
            number = self._number(policy, version)
            if number is None:
                raise Retry(f"MLflow does not know {version} yet")
            self._mlflow.set_model_version_tag(policy, number, "slipstream.state", state)
            for alias, held in aliases.items():
                if held:
                    self._mlflow.set_registered_model_alias(policy, alias, number)
                elif self._alias(policy, alias) == number:
                    self._mlflow.delete_registered_model_alias(policy, alias)

    def alias(self, policy: str, alias: str) -> str | None:
        """Our version behind an alias, or None."""
        with _mirrored():
            number = self._alias(policy, alias)
            if number is None:
                return None
            return str(self._mlflow.get_model_version(policy, number).tags.get(_VERSION_TAG))

    @property
    def _mlflow(self) -> MlflowClient:
        if self._client is None:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            from mlflow.tracking import MlflowClient

            # MLflow makes its tables when a client first opens a file; two processes at it break each other's migration.
            with FileLock(self._lock):
                self._client = MlflowClient(self._url, registry_uri=self._url)
        return self._client

    def _run(self, checkpoint: Checkpoint) -> Any:
        found = self._mlflow.get_experiment_by_name(checkpoint.policy)
        if found is None:
            local = None if self._url.startswith("http") else self._artifacts.as_uri()
            experiment = self._mlflow.create_experiment(checkpoint.policy, artifact_location=local)
        else:
            experiment = found.experiment_id
        return self._mlflow.create_run(experiment, run_name=checkpoint.version, tags={_VERSION_TAG: checkpoint.version})

    def _find(self, checkpoint: Checkpoint) -> str | None:
        from mlflow.exceptions import MlflowException

        try:
            self._mlflow.get_registered_model(checkpoint.policy)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self._mlflow.create_registered_model(checkpoint.policy)
        return self._number(checkpoint.policy, checkpoint.version)

    def _number(self, policy: str, version: str) -> str | None:
        found = self._mlflow.search_model_versions(f"name = '{policy}' and tag.`{_VERSION_TAG}` = '{version}'")
        return str(found[0].version) if found else None

    def _alias(self, policy: str, alias: str) -> str | None:
        aliases = self._mlflow.get_registered_model(policy).aliases
        return str(aliases[alias]) if alias in aliases else None


@contextmanager
def _mirrored() -> Iterator[None]:
    """Whatever MLflow or its store raises means: later."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError, OSError) as error:
        raise Retry(f"MLflow cannot be reached or will not do it now: {error}") from error
