"""Refusals: answers that say "I don't know" in one way or another. They are counted apart from wrong answers.

The patterns are English and must fit the whole first line in ``calmtune-1`` form: "The Unknown Soldier" is an answer.
Five things to know:

* a title such as "I Don't Know Where It Comes From" reads as a refusal; give ``aliases``, and a line that is an
  accepted answer never is one. Said to another question, it stays a refusal;
* a guess behind the refusal ("I don't know, but I think Paris") makes it an answer;
* "None", "nothing" and "nobody" are answers (three TriviaQA questions accept "None"), and so is an empty line, which is
  wrong by every rule;
* "N/A" is one, "Na" and "NA" (sodium, a country) are not;
* an opening apology alone decides nothing: "Sorry, Paris" is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .match import first_line, grade
from .normalise import normalise

REFUSAL_VERSION = "refusal-1"

# articles and apostrophes are gone and the case is folded when these are tried
_ABLE = r"(?:can ?not|cant|could not|couldnt|(?:am |im )?(?:not able|unable) to)"
_TELL = r"(?:answer|say|tell|provide|determine|give|find|help|assist|verify|confirm|identify|recall|remember|respond)"
_NOT = r"(?:do not|dont|did not|didnt)"
_SURE = r"(?:(?:entirely |really |quite |too |completely )?(?:sure|certain|aware of|familiar with))"
_FACTS = r"(?:clue|idea|information|knowledge|data|answer|details|context|record)"
_LOST = r"(?:unknown|not known|unclear|undetermined|unanswerable)"
_REST = r"(?: .+)?"
PATTERNS = (
    rf"(?:i )?(?:really |honestly |just )*{_NOT} (?:really |actually |currently )?know{_REST}",
    rf"(?:i )?dunno{_REST}|idk",
    rf"(?:i )?{_NOT} (?:currently )?(?:have|possess) (?:any |enough |sufficient |access to |that )*{_FACTS}{_REST}",
    rf"(?:i )?have no {_FACTS}{_REST}",
    rf"no (?:idea|clue){_REST}",
    rf"(?:im |i am )?(?:not {_SURE}|unsure|uncertain){_REST}",
    rf"i {_NOT} (?:recall|remember){_REST}",
    rf"(?:i )?{_ABLE} {_TELL}{_REST}",
    r"as (?:an )?(?:ai|artificial intelligence|language model)\b.*",
    rf"(?:answer |it |this |that )?(?:is |remains )?{_LOST}(?: to me)?",
    rf"(?:it |this |that |answer )?(?:can ?not|cant|could not) be (?:determined|answered|known|verified){_REST}",
    rf"(?:there is |theres )?(?:not enough|no|insufficient) (?:information|data|context){_REST}",
    r"(?:i )?(?:have |ive )?never heard of .+",
    r"n a|no answer|not available|not applicable",
)
_SORRY = r"(?:sorry|apologies|apologize|apologise|afraid|unfortunately)"
_APOLOGY = rf"(?:(?:im |i am |i |my )?(?:very |so |really )?{_SORRY}(?: but| that)? )*"
_REFUSAL = re.compile(rf"{_APOLOGY}(?:{'|'.join(PATTERNS)})")
_THINK = r"(?:i|id|i would) (?:think|believe|guess|say|assume|suppose)"
_IT_IS = r"but (?:it|he|she|they) (?:is|was|are|were|could|may|might)"
_GUESS = re.compile(rf"\b(?:maybe|perhaps|possibly|probably|my (?:best )?guess|{_IT_IS}|{_THINK})\b")


def is_refusal(answer: str, aliases: Sequence[str] = ()) -> bool:
    """Whether the first line of ``answer`` declines to answer.

    Args:
        answer: what the model said.
        aliases: accepted answers; a line that equals one of them is an answer, whatever it says.

    >>> is_refusal("I don't know."), is_refusal("The Unknown Soldier"), is_refusal("I don't know, maybe Paris")
    (True, False, False)
    """
    form = normalise(first_line(answer))
    if not _REFUSAL.fullmatch(form) or _GUESS.search(form):
        return False
    return not (aliases and grade(answer, aliases).correct)
