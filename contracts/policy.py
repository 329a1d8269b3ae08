"""A policy: the unit of configuration. One YAML file names the model and holds, or points to, everything else about it.

Each section belongs to the stage of its name; a knob has a default, a range and a unit. The reward spec and the rollout plan
are files of their own because several policies may share them and because a spec, once used, is never edited but versioned.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from contracts.record import Finite, Name, Record, Share

Options = dict[str, Any]
"""Knobs of one plugin; the plugin's own pydantic model checks them when it is built."""


class Model(Record):
    """Where the base weights come from: a folder, or `pkg://package/folder` inside an installed distribution."""

    base: Annotated[str, Field(min_length=1)]
    kind: Literal["full", "lora"] = "full"
    lora_rank: Annotated[int, Field(ge=1, le=256)] = 8


class Template(Record):
    """How a request becomes tokens. `ask` is appended to the prompt, `silence` and `end` end an answer."""

    context_tokens: Annotated[int, Field(ge=1, le=131_072, description="newest tokens of the prompt that are kept")] = 1024
    ask: str | None = None
    silence: str | None = None
    end: str | None = None
    stop: tuple[str, ...] = ()


class Serving(Record):
    """Sampling defaults of the policy and the size of a batch."""

    engine: Name = "torch"
    temperature: Annotated[float, Field(gt=0.0, le=2.0)] = 1.0
    max_tokens: Annotated[int, Field(ge=1, le=8192)] = 64
    batch: Annotated[int, Field(ge=1, le=1024, description="requests decoded together")] = 64


class Plugin(Record):
    """A plugin by name, with its options."""

    name: Name
    options: Options = Field(default_factory=dict)


class Learner(Record):
    """When a cycle starts and how it learns. A cycle starts by volume or by time, whichever comes first."""

    cycle_samples: Annotated[int, Field(ge=1, description="samples that start a cycle, and the most it takes")] = 4096
    cycle_seconds: Annotated[float, Field(gt=0, description="seconds after which fewer samples do")] = 14_400
    min_samples: Annotated[int, Field(ge=1, description="samples below which time starts nothing")] = 256
    max_lag: Annotated[int, Field(ge=0, description="checkpoints between sampling and training")] = 2
    max_subject_share: Annotated[Share, Field(description="of a batch, for one subject")] = 0.2
    loss: Plugin = Plugin(name="reinforce_tis")
    advantage: Plugin = Plugin(name="batch_mean")
    learning_rate: Annotated[float, Field(gt=0, lt=1)] = 3e-5
    minibatch: Annotated[int, Field(ge=1, description="samples per optimiser step")] = 128
    epochs: Annotated[int, Field(ge=1, le=16)] = 1
    grad_clip: Annotated[float, Field(gt=0, description="norm")] = 1.0
    max_kl: Annotated[float, Field(gt=0, description="nats per token, behaviour to new; above it nothing is sealed")] = 0.5


class RewardPart(Record):
    """An extractor and what its value is worth. Weight 0: measured for the gates, held out of the reward."""

    extractor: Name
    weight: Finite
    options: Options = Field(default_factory=dict)


class Prices(Record):
    """What an answer is worth when nobody could judge it. None: no reward, so it is never trained."""

    silence: Finite | None = 0.0
    empty: Finite | None = -0.25
    length: Finite | None = None
    abort: Finite | None = None
    error: Finite | None = None
    no_feedback: Finite | None = None


class RewardSpec(Record):
    """A versioned recipe. Its id is `<name>@<version>`; a spec that has been used is never edited, the next version replaces it."""

    name: Name
    version: Annotated[int, Field(ge=1)]
    parts: Annotated[tuple[RewardPart, ...], Field(min_length=1)]
    prices: Prices = Prices()
    clamp: tuple[Finite, Finite] = (-1.0, 1.0)

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.clamp[0] >= self.clamp[1]:
            raise ValueError(f"clamp: expected [low, high] with low < high, got {list(self.clamp)}")
        names = [part.extractor for part in self.parts]
        if len(set(names)) != len(names):
            raise ValueError(f"parts: each extractor once, got {names}")
        return self


class Step(Record):
    """One step of the ramp. A verdict needs all three minimums; at the deadline `unsure_means` decides."""

    share: Annotated[Share, Field(gt=0.0)]
    min_requests: Annotated[int, Field(ge=1, description="rewarded requests of the candidate")] = 200
    min_subjects: Annotated[int, Field(ge=1, description="subjects of the candidate")] = 5
    min_seconds: Annotated[float, Field(ge=0)] = 0.0
    max_seconds: Annotated[float, Field(gt=0)] = 86_400.0


class RolloutPlan(Record):
    """Gates before traffic, the ramp, gates at each step of it, and what being unsure means in the end."""

    name: Name
    bench_gates: tuple[Plugin, ...] = ()
    bench_seconds: Annotated[float, Field(gt=0, description="a bench that has not answered by then is an error")] = 600.0
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    gates: Annotated[tuple[Plugin, ...], Field(min_length=1)]
    unsure_means: Literal["roll_back", "promote"] = "roll_back"

    @model_validator(mode="after")
    def _grows(self) -> Self:
        shares = [step.share for step in self.steps]
        if shares != sorted(set(shares)):
            raise ValueError(f"steps: shares must grow, got {shares}")
        return self


Days = Annotated[float, Field(gt=0.0, le=36_500.0, allow_inf_nan=False, description="days")]


class Retention(Record):
    """How long each kind of data is kept. What goes is counted before it goes; see `docs/people.md`.

    What a running cycle has claimed stays until the cycle has ended; what was trained on keeps its row, without its tokens,
    because lineage needs to know whose it was. Dead letters, payloads and spools are shared by all policies of a deployment:
    the shortest time that any of them names holds.
    """

    raw_days: Annotated[Days, Field(description="turns and outcomes, after the last news of their episode")] = 90.0
    revisions_days: Annotated[Days, Field(description="joined episodes")] = 90.0
    rewards_days: Annotated[Days, Field(description="rewards, and samples that were never trained on")] = 180.0
    trained_days: Annotated[Days, Field(description="tokens of samples that were trained on; the row stays")] = 90.0
    refusals_days: Days = 30.0
    dead_letters_days: Days = 30.0
    payloads_days: Annotated[Days, Field(description="payloads over 256 KiB, which lie beside the log")] = 30.0
    spools_days: Annotated[Days, Field(description="what a dead process left and nobody could hand to the log")] = 30.0
    ids_days: Annotated[Days, Field(description="digests of event ids whose rows are gone: an id counts once until then")] = 3650.0


class Suite(Record):
    """A bench suite of the harness and its size."""

    name: Name
    options: Options = Field(default_factory=dict)


class Policy(Record):
    """Everything about one policy, resolved: the reward spec and the rollout plan are the files' contents."""

    name: Name
    model: Model
    template: Template = Template()
    serving: Serving = Serving()
    reward: RewardSpec
    learner: Learner = Learner()
    rollout: RolloutPlan
    bench: tuple[Suite, ...] = ()
    retention: Retention = Retention()
    quiet_seconds: Annotated[float, Field(gt=0, description="without news after which an episode closes by itself")] = 900.0
    orphan_seconds: Annotated[float, Field(gt=0, description="that an outcome waits for its turn before it is refused")] = 3600.0
