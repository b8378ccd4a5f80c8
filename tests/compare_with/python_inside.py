"""Prints what the Python interface reads inside the model, a JSON line for each question."""

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


def candidates(each):
    """The five most probable tokens."""
    return [[one.id, one.text, one.prob] for one in each.steps[-1].top(5)]


s = mi.open("pocket", prompt="Lily has a red ball. Tom has a blue", chat=False, temp=0, top_p=1.0, seed=7)
s.run(4).wait()
place = s.at(s.steps[2])
for layer in range(8):
    tell("attention", lambda layer=layer: place.attention().weights(layer).tolist())
tell("attention check", lambda: [sorted(place.attention().check), repr(place.attention())])
for given in ({}, {"integrated": False}, {"against": " ball", "baseline": "first", "steps": 8}):
    tell("gradients", lambda given=given: [
        [[one.place, one.share] for one in place.gradients(" car", **given).top(5)],
        place.gradients(" car", **given).residual,
    ])  # fmt: skip
scores = place.scores(4, 2)
tell("scores", lambda: [scores.weights, scores.in_key(), scores.in_query(), scores.why(), repr(scores)])
for given in ((100, "token"), (3, "path"), (0, "mask")):
    tell(
        "moved",
        lambda given=given: [
            place.moved(*given).kl_bits,
            place.moved(*given).tokens,
            repr(place.moved(*given)),
        ],
    )
tell("map", lambda: s.map().rows)
tell("experts", lambda: repr(s.experts()))
tell("heads", lambda: [[each.layer, each.head, each.previous] for each in s.heads().heads])
tell(
    "random heads",
    lambda: [[each.layer, each.head, each.previous] for each in s.heads(texts=2, length=9, seed=3).heads],
)
for units in ("L6 h1", "L3 mlp", "L2 x0.5", "blocks.5.attn.hook_z[0]"):
    with s.off(units):
        tell(
            "off", lambda units=units: [place.run(4).wait().text, candidates(s.at(s.steps[2]).run(1).wait())]
        )
made = s.direction([("I am happy", "I am sad"), ("It was great", "It was bad")], layer=3)
tell("direction", lambda: [made.vector.tolist(), repr(made)])
with s.steer(made, 2.0):
    tell("steered", lambda: place.run(4).wait().text)
tell(
    "merges",
    lambda: [s.merges("unhappiness 🐕").words, s.merges("unhappiness").ladder(), repr(s.merges("naïve"))],
)
b = s.at(s.steps[1]).take(" big").run(2).wait()
tell("patching", lambda: type(s.patching(b, " car", " ball")).__name__ and "done")
tell("page", lambda: len(s.to_html()) > 1000)
s.close()
for each in mi.train(layers=1, width=32, steps=6, every=3, seed=5):
    tell(
        "trained", lambda each=each: [each.step, each.loss, each.rate, each.look and each.look.held_out_loss]
    )
