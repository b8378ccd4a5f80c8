"""Parts that need no other process: hostfiles, how families divide, what ranks compare, what is released."""

from __future__ import annotations

import gc
import json
import re
from collections import deque
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from engine.cache.live import KV
from engine.errors import LoadError, SettingsError
from engine.model.load import prepare
from engine.ranks.hosts import RankHosts, hosts_of
from engine.ranks.kv import Handle
from engine.ranks.mirror import Print, divide, held, kv_facts, sharding_of
from engine.setting import check
from engine.settings import LoadSettings
from tests import synthetic
from tests.zoo import CONFIGS, Zoo

HERE: dict[str, Any] = {"ssh": "127.0.0.1", "ips": ["127.0.0.1"]}
THERE: dict[str, Any] = {"ssh": "mac-2", "ips": ["192.168.1.2", "10.0.0.2"]}


def written(folder: Path, content: object) -> LoadSettings:
    """Settings with a hostfile of some content."""
    path = folder / "hosts.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return LoadSettings(hostfile=str(path))


# ---- hosts ------------------------------------------------------------------------------------


def test_a_hostfile_of_mlx_launch(tmp_path: Path) -> None:
    hosts = hosts_of(written(tmp_path, [HERE, THERE]))
    assert [(host.ssh, host.ips, host.local) for host in hosts.ranks] == [
        ("127.0.0.1", ("127.0.0.1",), True),
        ("mac-2", ("192.168.1.2", "10.0.0.2"), False),
    ]
    full = {"backend": "ring", "envs": ["MLX_METAL_FAST_SYNCH=1"], "hosts": [HERE, HERE]}
    assert hosts_of(written(tmp_path, full)).envs == ("MLX_METAL_FAST_SYNCH=1",)


def test_ranks_of_this_machine_meet_at_free_ports() -> None:
    meeting = hosts_of(LoadSettings(ranks=3)).meeting()
    nodes = json.loads(meeting.files["MLX_HOSTFILE"])
    assert len({node for (node,) in nodes}) == 3
    assert nodes[0] == [f"127.0.0.1:{meeting.address[1]}"]


def test_hosts_elsewhere_meet_at_the_ports_of_mlx_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSPECTOR_RANKS_PORT", "45000")
    nodes = json.loads(hosts_of(written(tmp_path, [HERE, THERE])).meeting().files["MLX_HOSTFILE"])
    assert nodes == [["127.0.0.1:45000"], ["192.168.1.2:45001", "10.0.0.2:45001"]]
    for wrong in ("0", "65535", "x", "-1", "99999999"):
        monkeypatch.setenv("INSPECTOR_RANKS_PORT", wrong)
        with pytest.raises(LoadError, match="must be a port"):
            hosts_of(LoadSettings(ranks=2)).meeting()


def test_jaccl_is_told_its_devices(tmp_path: Path) -> None:
    hosts = [{**HERE, "rdma": [None, "rdma_en2"]}, {**THERE, "rdma": ["rdma_en2", None]}]
    meeting = hosts_of(written(tmp_path, {"backend": "jaccl-ring", "hosts": hosts})).meeting()
    assert json.loads(meeting.files["MLX_IBV_DEVICES"]) == [[None, "rdma_en2"], ["rdma_en2", None]]
    assert meeting.variables == {"MLX_JACCL_COORDINATOR": "127.0.0.1:32323", "MLX_JACCL_RING": "1"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Expecting"),
        ("[]", "from 2 to 64 hosts"),
        ([HERE], "from 2 to 64 hosts"),
        ([THERE, HERE], "its first host is this process"),
        ([HERE, {"ips": ["1.2.3.4"]}], "host 1 has no ssh"),
        ([HERE, {"ssh": "-oProxyCommand=x", "ips": ["1.2.3.4"]}], "host 1 has no ssh that is a name"),
        ([HERE, {"ssh": "a\nb", "ips": ["1.2.3.4"]}], "host 1 has no ssh that is a name"),
        ([HERE, {"ssh": "mac-2"}], "host 1 has no ips"),
        ([HERE, {"ssh": "mac-2", "ips": ["mac-2.local"]}], "does not appear to be an IPv4 or IPv6 address"),
        ({"hosts": [HERE, HERE], "backend": "nccl"}, "its backend must be one of ring, jaccl, jaccl-ring"),
        ({"hosts": [HERE, HERE], "envs": ["X"]}, "its envs must be a list of NAME=VALUE"),
        ({"hosts": [HERE, HERE], "backend": "jaccl"}, "needs an rdma device"),
        ("[" * 100_000, "can't be used"),
    ],
)
def test_a_hostfile_that_is_none_is_refused_in_one_line(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(LoadError, match=re.escape(said)) as refused:
        hosts_of(written(tmp_path, content))
    assert "\n" not in str(refused.value)


def test_other_numbers_of_ranks_are_refused(tmp_path: Path) -> None:
    settings = written(tmp_path, [HERE, HERE])
    with pytest.raises(LoadError, match="names 2 hosts, and 3 ranks were asked for"):
        hosts_of(LoadSettings(hostfile=settings.hostfile, ranks=3))
    for wrong in (0, 65, -1):
        with pytest.raises(SettingsError, match="from 1 to 64"):
            check(LoadSettings(ranks=wrong))
    with pytest.raises(SettingsError, match="one of auto, tensor, pipeline"):
        check(LoadSettings(shard="rows"))
    with pytest.raises(LoadError, match="can't be used"):
        hosts_of(LoadSettings(hostfile="/nowhere/hosts.json"))


# ---- how a model is divided -------------------------------------------------------------------


class Group:
    """Of MLX, without its processes."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


def test_what_a_family_can_is_said(zoo: Zoo) -> None:
    llama, gpt2, hybrid = (zoo.load(name).model for name in ("llama", "gpt2", "qwen3-next"))
    assert sharding_of(llama, "auto", "llama") == "tensor"
    assert sharding_of(hybrid, "auto", "qwen3_next") == "pipeline"
    with pytest.raises(LoadError, match="divides a model of type llama by tensor, not by pipeline"):
        sharding_of(llama, "pipeline", "llama")
    with pytest.raises(LoadError, match="can't divide a model of type gpt2 over several processes"):
        sharding_of(gpt2, "auto", "gpt2")


def test_layers_are_divided_from_the_last_rank_on(zoo: Zoo) -> None:
    shards = [
        divide(prepare(LoadSettings(str(zoo.path("qwen2")))).model, "pipeline", Group(rank, 2), "qwen2")
        for rank in range(2)
    ]
    assert [(shard.first_layer, shard.layers) for shard in shards] == [(1, 1), (0, 1)]


@pytest.mark.parametrize(
    ("family", "changes", "ranks", "said"),
    [
        ("llama", {"num_key_value_heads": 2}, 4, "it has 2 KV heads. Use 2 ranks."),
        ("llama", {"num_key_value_heads": 1}, 2, "it has 1 KV head. Run it in one process: leave --ranks"),
        ("gpt-oss", {"num_key_value_heads": 1}, 2, "it has 1 KV head. Run it in one process: leave --ranks"),
        ("llama", {"num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 16}, 4, "it has 6 heads. Use 3"),
        ("llama", {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16}, 4, "it has 6 heads. Use 2"),
    ],
)  # fmt: skip
def test_more_ranks_than_heads_are_refused_as_that(
    tmp_path: Path, family: str, changes: dict[str, int], ranks: int, said: str
) -> None:
    """mlx_lm divides without a check, so that a rank would have no heads, or a part of one."""
    path = synthetic.write(tmp_path / "model", {**CONFIGS[family], **changes})
    model = prepare(LoadSettings(str(path))).model
    with pytest.raises(LoadError) as error:
        divide(model, "tensor", Group(0, ranks), family)
    assert said in str(error.value)


# ---- what ranks compare -----------------------------------------------------------------------


def test_logits_agree_to_the_bit_on_one_machine_and_nearly_on_others() -> None:
    logits = mx.array([[[1.0, 2.0, 30.0]]])
    near, far = Print.of(logits + 1e-4), Print.of(logits + 3.0)
    mine = Print.of(logits)
    assert mine.disagreement(Print.of(logits + 0.0), same_machine=True) == ""
    assert "computed other logits" in mine.disagreement(near, same_machine=True)
    assert mine.disagreement(near, same_machine=False) == ""
    assert "computed other logits" in mine.disagreement(far, same_machine=False)


@pytest.mark.parametrize("name", ["llama", "qwen3-next", "gpt-oss"])
def test_what_a_cache_holds_is_told_and_read(zoo: Zoo, name: str) -> None:
    loaded = zoo.load(name)
    kv = KV(loaded.model, loaded.settings)
    mx.eval(kv.run(loaded.model, mx.array([[5, 6, 7]]), chunk=True), kv.state())
    read = held(json.loads(json.dumps(kv_facts(kv))))
    assert list(read.readings) == list(kv.readings())
    assert (read.offset, read.steps_back, read.quantized) == (3, kv.can_step_back(), kv.quantized())
    assert read.unsupported == kv.without_snapshots()


def test_a_snapshot_that_nothing_has_is_released() -> None:
    released: deque[tuple[str, int]] = deque()
    handle = Handle(7, released)
    assert not released
    del handle
    gc.collect()
    assert list(released) == [("snapshot", 7)]


def test_hosts_are_equal_where_their_ranks_are() -> None:
    assert (
        hosts_of(LoadSettings(ranks=2)) == hosts_of(LoadSettings(ranks=2)) != hosts_of(LoadSettings(ranks=3))
    )
    assert isinstance(hosts_of(LoadSettings(ranks=2)), RankHosts)
