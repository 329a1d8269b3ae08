"""`python -m infra.cli`: the same as `slipstream`, for where scripts are not on the path."""

from infra.cli.main import app

app()
