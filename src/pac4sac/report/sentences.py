"""Write lists of names and verdicts on variants as whole sentences."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from pac4sac.base.grouping import group_by

MOST_IN_SUBJECT = 3  # a longer list of variants follows after a colon


def listed(names: Sequence[str]) -> str:
    """Return names as in `a, b and c`; empty without names."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def verdict_sentences(
    labels: Iterable[tuple[str, str]], templates: Mapping[str, str], start: str = "", **named: str
) -> str:
    """Return a sentence for each verdict, in the order of the templates.

    Args:
        labels: Pairs of a verdict and the name of a variant; other verdicts than those of the
            templates are left out.
        templates: Sentences by verdict, with `{names}` for the variants and `{are}` for the verb.
        start: Words before the first sentence.
        named: Other names in the templates, such as `baseline`.
    """
    by_verdict = group_by(labels, key=itemgetter(0))
    sentences = list[str]()
    for verdict in filter(by_verdict.__contains__, templates):
        names = [name for _, name in by_verdict[verdict]]
        begun = "" if sentences else start
        sentences.append(_sentence(templates[verdict], names, begun, named))
    return " ".join(sentences)


def _sentence(template: str, names: Sequence[str], start: str, named: Mapping[str, str]) -> str:
    is_long = len(names) > MOST_IN_SUBJECT
    subject = f"these {len(names)} variants" if is_long else listed(names)
    text = template.format(names=subject, are="is" if len(names) == 1 else "are", **named)
    text += f": {listed(names)}." if is_long else "."
    if start:
        return f"{start} {text}"
    return text if text.startswith(names[0]) else text[0].upper() + text[1:]
