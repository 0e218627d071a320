"""Whatever may stand in a report that was loaded from a file: it can be saved, and told, all the same."""

from hypothesis import strategies as st

from bisect_tvm.numerics.verdict import Element, Verdict
from bisect_tvm.report.report import Cost, Entry, Explanation, Kept, Proof, Report, Workaround

numbers = st.none() | st.floats()
scalars = st.floats() | st.integers(-(2**63), 2**64) | st.booleans()
elements = st.builds(
    Element,
    output=st.integers(0, 9),
    index=st.lists(st.integers(0, 99)).map(tuple),
    actual=scalars,
    expected=scalars,
    precision=st.sampled_from(["float64", "native"]),
)
# Lone surrogates too: they stand for undecodable bytes in file names.
texts = st.text(st.characters())
long_texts = texts | st.builds(lambda text, times: text * times, texts, st.integers(1, 200))
codes = texts | st.lists(texts, max_size=40).map("\n".join)


def entries(identity: str, parent: str | None) -> st.SearchStrategy[Entry]:
    return st.builds(
        Entry,
        id=st.just(identity),
        parent=st.just(parent),
        depth=st.integers(0, 9),
        kind=st.sampled_from(["model", "module", "operator", "run"]),
        path=long_texts,
        operator=st.none() | long_texts | st.lists(texts, min_size=2, max_size=30).map(" + ".join),
        module_class=texts,
        source=st.none() | long_texts,
        verdict=st.sampled_from(Verdict),
        reason=long_texts,
        deviation32=numbers,
        deviation64=numbers,
        excess32=numbers,
        excess64=numbers,
        worst=st.none() | elements,
        operators=st.integers(1, 9),
        stated=st.lists(st.sampled_from(Verdict)).map(tuple),
        undecided=st.integers(0, 9),
        cumulative32=numbers,
        cumulative64=numbers,
        effect=st.none() | st.sampled_from(["introduces", "inherits", "amplifies", "attenuates"]),
        parts=st.lists(texts, max_size=3).map(tuple),
        sample=st.integers(0, 3),
        samples=st.lists(st.integers(0, 99), max_size=9).map(tuple),
        conclusive=st.booleans(),
        doubtful=st.booleans(),
        strictest=st.floats(),
    )


def proofs(culprits: st.SearchStrategy[tuple[str, ...]]) -> st.SearchStrategy[Proof]:
    yes_or_no = st.none() | st.booleans()
    kept = st.builds(Kept, culprit_ids=culprits, deviation32=numbers, deviation64=numbers, necessary=yes_or_no)
    return st.builds(
        Proof,
        sufficient=yes_or_no,
        reason=long_texts,
        deviation32=numbers,
        deviation64=numbers,
        excess64=numbers,
        kept=st.lists(kept, max_size=12).map(tuple),
    )


def explanations(culprits: st.SearchStrategy[tuple[str, ...]]) -> st.SearchStrategy[Explanation]:
    workaround = st.builds(Workaround, what=long_texts, code=codes, deviation32=numbers, deviation64=numbers, whole=st.booleans())
    return st.builds(
        Explanation,
        culprit_ids=culprits,
        stage=st.sampled_from(["importer or lowering", "pass", "code generation", "unknown"]),
        where=long_texts,
        aten=codes,
        relax=codes,
        tir=codes,
        converters=st.lists(long_texts, max_size=3).map(tuple),
        workarounds=st.lists(workaround, max_size=3).map(tuple),
        tried=st.lists(long_texts, max_size=5).map(tuple),
    )


@st.composite
def reports(draw: st.DrawFn, most: int = 4) -> Report:
    """Any report of up to `most` components."""
    size = draw(st.integers(1, most))
    tree = [draw(entries(str(n), None if n == 0 else str(draw(st.integers(0, n - 1))))) for n in range(size)]
    some = st.lists(st.sampled_from([entry.id for entry in tree]), unique=True).map(tuple)
    environment = draw(st.dictionaries(texts, long_texts, max_size=3))
    if draw(st.booleans()):
        environment["samples"] = str(draw(st.integers(2, 9)))
    return Report(
        verdict=draw(st.sampled_from(Verdict)),
        summary=draw(long_texts),
        tree=tuple(tree),
        culprit_ids=draw(some),
        environment=environment,
        cost=Cost(draw(st.integers(0, 9)), draw(st.dictionaries(texts, st.floats(0), max_size=3)), draw(st.integers(0, 9))),
        proof=draw(st.none() | proofs(some)),
        explanations=tuple(draw(st.lists(explanations(some), max_size=5))),
        unfinished=draw(st.just("") | long_texts),
        fingerprint=draw(texts),
    )
