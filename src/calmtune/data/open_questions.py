"""Open questions: the texts that ask for a short answer, by name, and which accepted answer is trained on."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Literal

OpenPrompt = Literal["question", "short", "short_or_unknown", "examples"]
OpenTarget = Literal["first", "central"]

# stands before "Question: ...\nAnswer:"; a text that is changed gets another name, since stored samples name it
OPEN_PROMPTS: dict[str, str] = {
    "question": "",
    "short": "Answer the question with a name, a number or a few words, not with a sentence.",
    "short_or_unknown": "Answer the question with a name, a number or a few words, not with a sentence. If you do not "
    'know, say "I don\'t know".',
    "examples": "Question: What is the capital of France?\nAnswer: Paris\n\n"
    "Question: Who wrote the play Hamlet?\nAnswer: William Shakespeare\n\n"
    "Question: How many legs does a spider have?\nAnswer: 8\n\n"
    "Question: What is Marie Curie's occupation?\nAnswer: physicist",
}


def target_answer(answers: Sequence[str], target: OpenTarget) -> str:
    """The accepted answer that training teaches.

    ``first``: as the file has it. ``central``: the one with most words in common with the others, mean Jaccard index of
    the sets of words (case and punctuation at a word's ends do not count); of equal ones the shortest, then the first.
    TriviaQA's lists hold nicknames, misspellings and other things of one redirect page in no order, so that their first
    entry is often none that people would give.

    >>> names = ["The Finer Grain", "Henry james", "James, Henry", "Henry James OM", "H James"]
    >>> target_answer(names, "first"), target_answer(names, "central")
    ('The Finer Grain', 'Henry james')
    """
    if target == "first" or len(answers) == 1:
        return answers[0]
    words = [_words(answer) for answer in answers]
    shared = [sum(_jaccard(one, other) for other in words) for one in words]
    # sums of the same terms in another order must tie
    return min(zip(answers, shared, strict=True), key=lambda pair: (-round(pair[1], 9), len(pair[0])))[0]


def _words(text: str) -> frozenset[str]:
    stripped = (word.strip(string.punctuation) for word in text.casefold().split())
    return frozenset(word for word in stripped if word)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0
