"""Prints what a session of the Python interface answers, a JSON line for each question."""

import json

import mlx_inspector as mi


def tell(name, answer):
    """Print an answer; an error is one, too, and one that is not the program's own is no reason to end here."""
    try:
        value = answer()
    except mi.EngineError as error:
        value = f"{type(error).__name__}: {error}"
    except Exception as error:
        value = f"FAILED: {type(error).__name__}: {error}"
    print(json.dumps({"event": name, "value": value}, default=repr))


def step(each):
    """A step in plain values."""
    names = "id text prob logprob rank surprisal_bits entropy_bits segment index"
    found = {name: getattr(each, name, None) for name in names.split()}
    return found | {"top": [[one.id, one.text, one.prob] for one in each.top(5)]}


def branch(each):
    """A branch in plain values."""
    return {
        "text": each.text,
        "ids": each.ids,
        "logprob": each.logprob,
        "finished": each.finished,
        "node": each.node,
        "steps": [step(one) for one in each.steps],
    }


def sampler(each):
    """An explanation in plain values."""
    top = [[one.id, one.text, one.prob] for one in each.top(8)]
    return {"stages": each.stages, "picked": each.picked, "draw": each.draw, "top": top, "shown": repr(each)}


settings = {"temp": 0.8, "top_p": 0.95, "seed": 7}
s = mi.open("pocket", prompt="Once upon a time", chat=False, **settings)
tell("run", lambda: [step(each) for each in s.run(12)])
tell("session", lambda: branch(s))
other = s.at(s.steps[5]).take(" cat")
tell("taken", lambda: branch(other))
tell("branch", lambda: branch(other.run(6).wait()))
tell("own text", lambda: branch(s.at(s.steps[3]).take(" big dog, naïve 🐕").run(3).wait()))
last = s.tree[-1]
tell(
    "compare",
    lambda: [mi.compare(s, last).shared, mi.compare(s, last).logprobs, repr(mi.compare(s, last))],
)
for place in (0, 4, -1):
    tell("sampler", lambda place=place: sampler(s.at(s.steps[place]).sampler()))
    tell(
        "other settings",
        lambda place=place: sampler(s.at(s.steps[place]).sampler(temp=1.4, top_k=5, min_p=0.01)),
    )
tell("next sampler", lambda: sampler(s.sampler()))
for given in ({"temp": 0.1}, {"temp": 1.5, "top_p": 1.0}, {"top_k": 1}, {"repetition_penalty": 1.5}):
    tell("what if", lambda given=given: [len(s.what_if(**given).differing), repr(s.what_if(**given))])
tell("tree", lambda: [[branch(each) for each in s.tree], repr(s.tree), s.tree._repr_html_()])
tell(
    "shown",
    lambda: [repr(s), s._repr_html_(), s.at(s.steps[4]).sampler()._repr_html_(), repr(s.model.family)],
)
tell(
    "settings",
    lambda: {name: getattr(s.settings, name) for name in ["temp", "top_p", "seed", "top_k", "min_p"]},
)
s.set(temp=0.3, max_tokens=40)
tell("other temperature", lambda: branch(s.run(6).wait()))
tell("page", lambda: len(s.to_html("own.html")) > 1000)
tell("saved", lambda: str(s.save("own", force=True)).rpartition("/")[2])
tell("reopened", lambda: branch(mi.open("own")))
tell("reopened tree", lambda: [branch(each) for each in mi.open("own").tree])
for wrong in (
    lambda: s.at(99),
    lambda: s.take(10**6),
    lambda: s.run(0),
    lambda: s.set(temp=-1),
    lambda: mi.open("text.txt"),
):
    tell("error", wrong)
s.close()
with mi.open(
    "pocket", messages=[{"role": "user", "content": "Tell me a story."}], max_tokens=10, **settings
) as s:
    tell("chat", lambda: branch(s.run(40).wait()))
with mi.open(
    "pocket", prompt="Lily had a", chat=False, temp=0, top_p=1.0, logit_bias={14: -100}, kv_bits=8
) as s:
    tell("quantized", lambda: branch(s.run(8).wait()))
