"""The last question: why does each kind of culprit deviate, and what helps.

kinds of culprits -> stage (one build) -> remedies on the culprits (one build) -> the best ones on the whole model (one build)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bisect_tvm.errors import StoppedError
from bisect_tvm.explain.bench import Bench, Variant
from bisect_tvm.explain.kinds import Culprit, Kind, calls, off
from bisect_tvm.explain.remedy import Remedy, candidates, code, deeper, flipped
from bisect_tvm.explain.setting import Setting
from bisect_tvm.explain.stage import SHORTEST, Located, stages
from bisect_tvm.interrupts import seen
from bisect_tvm.lowering.evidence import converters, kernel_text, relax_text
from bisect_tvm.lowering.pipeline import Pipeline
from bisect_tvm.model.cut import Boundary
from bisect_tvm.numerics.judge import Judgement, worst_of
from bisect_tvm.report.report import INTERRUPTED, Explanation, Workaround

MOST_TRIED_ON = 16
"""Culprits of one kind on which a remedy is tried, those that deviate most."""
MOST_ON_WHOLE = 3
"""Sets of remedies that are tried on the whole model."""


@dataclass(frozen=True)
class _Outcome:
    """What a remedy did to culprits of one kind."""

    remedy: Remedy
    judgement: Judgement

    @property
    def cures(self) -> bool:
        return not self.judgement.diverges and not self.judgement.unresolved


@dataclass
class Explainer:
    """Explains kinds of culprits. What is known at any time is kept, so that it can be stopped.

    Args:
        kinds: the culprits.
        bench: builds and measures.
        setting: how the user converts the model.
        whole: what enters and leaves the model; None where nothing can be tried on it (it does not deviate, or cannot be compared).
        say: told what is being done.
    """

    kinds: Sequence[Kind]
    bench: Bench
    setting: Setting
    whole: Boundary | None
    say: Callable[[str], None]
    _stages: Mapping[str, Located] = field(default_factory=dict)
    _outcomes: dict[str, list[_Outcome]] = field(default_factory=dict)
    _on_whole: list[_Outcome] = field(default_factory=list)
    _shorter: dict[frozenset[str], Pipeline] = field(default_factory=dict)

    def run(self) -> None:
        """Explain all."""
        if not self.kinds:
            return
        self.say("finding the stage of TVM that is to blame")
        self._stages = stages(self.kinds, self.bench)
        self.say("trying workarounds on the culprits")
        self._try_on_culprits()
        if self.whole is not None:
            self.say("trying workarounds on the whole model")
            self._try_on_whole(self.whole)

    @property
    def explanations(self) -> tuple[Explanation, ...]:
        """What is known by now."""
        return tuple(self._explanation(kind) for kind in self.kinds)

    def _try_on_culprits(self) -> None:
        """Try every candidate; where none cures, what it takes to import or compute the decomposed operators as well."""
        first = []
        for kind in self.kinds:
            located = self._stages[kind.name]
            first += [(kind, remedy) for remedy in candidates(kind, located.stage, located.culprit_pass, self.setting)]
        self._try(first)
        uncured = [kind for kind in self.kinds if not self._cures(kind)]
        self._try([(kind, remedy) for kind in uncured for remedy in deeper(kind, self.bench.operators_after(kind))])

    def _try(self, pairs: Sequence[tuple[Kind, Remedy]]) -> None:
        """Try remedies on the worst culprits of their kinds; those with the same passes and target in one build."""
        groups: dict[tuple[Pipeline, bool], dict[str, tuple[Kind, Remedy, list[Variant]]]] = {}
        for kind, remedy in pairs:
            variants = [self.bench.variant(culprit.edge, remedy) for culprit in _most_telling(kind)]
            group = groups.setdefault((self._pipeline(remedy), remedy.unoptimised), {})
            group[f"{kind.name}: {remedy.what}"] = kind, remedy, variants
        for (pipeline, at_level_0), group in groups.items():
            single = {f"{name} {i}": v for name, (_, _, variants) in group.items() for i, v in enumerate(variants)}
            measured = self.bench.measure(single, pipeline=pipeline, at_level_0=at_level_0)
            for name, (kind, remedy, variants) in group.items():
                judgement = _worst([measured[f"{name} {i}"] for i in range(len(variants))])
                self._outcomes.setdefault(kind.name, []).append(_Outcome(remedy, judgement))

    def _try_on_whole(self, edge: Boundary) -> None:
        """Try one remedy for each kind, all at once, until the model agrees."""
        cures = [self._cures(kind) for kind in self.kinds]
        tried: list[Remedy] = []
        if all(cures):
            for choice in range(min(MOST_ON_WHOLE, max(map(len, cures)))):
                remedy = cures[0][min(choice, len(cures[0]) - 1)]
                for others in cures[1:]:
                    remedy = remedy.joined(others[min(choice, len(others) - 1)])
                tried.append(remedy)
        elif self.setting.decompose:
            tried.append(flipped())
        for remedy in tried:
            undecomposed = remedy.decompose is False
            variant = self.bench.undecomposed(edge, remedy) if undecomposed else self.bench.variant(edge, remedy)
            pipeline, at_level_0 = self._pipeline(remedy), remedy.unoptimised
            judged = self.bench.measure({"": variant}, pipeline=pipeline, at_level_0=at_level_0)[""]
            self._on_whole.append(_Outcome(remedy, judged))
            if self._on_whole[-1].cures:
                return

    def _cures(self, kind: Kind) -> list[Remedy]:
        return [outcome.remedy for outcome in self._outcomes.get(kind.name, ()) if outcome.cures]

    def _pipeline(self, remedy: Remedy) -> Pipeline:
        """What the remedy makes of the user's pipeline: the same object for the same passes, so that they share a build."""
        if remedy.default_pipeline:
            return SHORTEST
        if remedy.without not in self._shorter:
            pipeline = self.bench.workshop.builder.pipeline
            for name in remedy.without:
                pipeline = pipeline.without(name) or pipeline
            self._shorter[remedy.without] = pipeline
        return self._shorter[remedy.without]

    def _explanation(self, kind: Kind) -> Explanation:
        located = self._stages.get(kind.name) or Located("unknown", "it was not looked at")
        imported = self.bench.unchanged(kind).imported
        checked = {outcome.remedy.what for outcome in self._on_whole if outcome.cures}
        alone = (outcome for outcome in self._outcomes.get(kind.name, ()) if outcome.remedy.what not in checked)
        outcomes = [*self._on_whole, *alone]
        return Explanation(
            culprit_ids=tuple(culprit.component.id for culprit in kind.culprits),
            stage=located.stage,
            where=located.where,
            aten=calls(kind.worst.edge),
            relax="" if isinstance(imported, str) else relax_text(imported),
            tir="" if isinstance(imported, str) else kernel_text(imported, self.bench.workshop.builder),
            converters=converters(kind.converted_as, self.bench.workshop.convert_map),
            workarounds=tuple(self._workaround(outcome) for outcome in outcomes if outcome.cures),
            tried=tuple(_failed(o, whole=o in self._on_whole) for o in outcomes if not o.cures),
        )

    def _workaround(self, outcome: _Outcome) -> Workaround:
        judgement = outcome.judgement
        return Workaround(
            what=outcome.remedy.what,
            code=code(outcome.remedy, self.setting),
            deviation32=judgement.deviation32,
            deviation64=judgement.deviation64,
            whole=outcome in self._on_whole,
        )


_STEP = "stages and workarounds"


def explain(explainer: Explainer) -> str:
    """Explain as far as the budget and the user allow; tells what was not done, if anything."""
    try:
        explainer.run()
    except StoppedError as error:
        return f"{error} while looking at {_STEP}"
    except KeyboardInterrupt:
        seen()
        return f"{INTERRUPTED} while looking at {_STEP}"
    return ""


def _most_telling(kind: Kind) -> list[Culprit]:
    return sorted(kind.culprits, key=lambda culprit: culprit.deviation, reverse=True)[:MOST_TRIED_ON]


def _worst(judgements: Sequence[Judgement]) -> Judgement:
    return next((each for each in judgements if each.unresolved), None) or worst_of(judgements)


def _failed(outcome: _Outcome, *, whole: bool) -> str:
    judgement, where = outcome.judgement, " on the whole model" if whole else ""
    if judgement.unresolved:
        return f"{outcome.remedy.what}{where}: {judgement.reason}"
    return f"{outcome.remedy.what}{where}: still {off(judgement)}"
