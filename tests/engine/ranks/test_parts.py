"""Parts that need no other process: hostfiles, how families divide, how the end of a rank is told."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from engine.errors import LoadError, SettingsError
from engine.model.load import prepare
from engine.ranks import handlers
from engine.ranks.handlers import divide, sharding_of
from engine.ranks.hosts import RankHost, RankHosts, hosts_of
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
    near = hosts_of(written(tmp_path, [{"ssh": "localhost"}, {"ssh": "::1", "ips": ["10.0.0.1"]}])).ranks
    assert [(host.ssh, host.ips) for host in near] == [
        ("127.0.0.1", ("127.0.0.1",)),
        ("127.0.0.1", ("10.0.0.1",)),
    ]


def launched(hosts: RankHosts, folder: Path) -> tuple[int, dict[str, Any]]:
    """The first port and the hosts that mlx.launch gets."""
    command = hosts.command(folder, "pass")
    return int(command[command.index("--starting-port") + 1]), json.loads((folder / "hosts.json").read_text())


def test_ranks_of_this_machine_meet_at_free_ports(tmp_path: Path) -> None:
    first, hosts = launched(hosts_of(LoadSettings(ranks=3)), tmp_path)
    for port in range(first, first + 3):
        socket.create_server(("127.0.0.1", port)).close()
    assert hosts == {"hosts": [{**HERE, "rdma": []}] * 3, "backend": "ring", "envs": []}


def test_hosts_elsewhere_meet_at_the_ports_of_mlx_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launched(hosts_of(written(tmp_path, [HERE, THERE])), tmp_path)[0] == 32323
    monkeypatch.setenv("INSPECTOR_RANKS_PORT", "45000")
    assert launched(hosts_of(written(tmp_path, [HERE, THERE])), tmp_path)[0] == 45000
    for wrong in ("0", "65535", "x", "-1", "99999999"):
        monkeypatch.setenv("INSPECTOR_RANKS_PORT", wrong)
        with pytest.raises(LoadError, match="must be a port"):
            launched(hosts_of(LoadSettings(ranks=2)), tmp_path)


def test_a_port_that_is_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("INSPECTOR_RANKS_PORT", str(port - 1))
        with pytest.raises(LoadError, match=f"Ranks can't meet at 127.0.0.1, port {port}"):
            launched(hosts_of(LoadSettings(ranks=2)), tmp_path)


def test_mlx_launch_is_told_the_devices_of_jaccl(tmp_path: Path) -> None:
    hosts = [{**HERE, "rdma": [None, "rdma_en2"]}, {**THERE, "rdma": ["rdma_en2", None]}]
    given = {"backend": "jaccl-ring", "hosts": hosts}
    assert launched(hosts_of(written(tmp_path, given)), tmp_path)[1] == {**given, "envs": []}


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
        ([HERE, {**THERE, "rdma": "rdma_en2"}], "the rdma of host 1 is not a list"),
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
    assert shards == [range(1, 2), range(1)]


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


# ---- how ranks end ------------------------------------------------------------------------------

WARN = "\x1b[33m[WARN] Node with rank {} exited with code {} \x1b[0m\n"
RING = "rank 0: RuntimeError: [ring] connection to a peer was lost\n[ring] Receiving from socket 5 failed\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WARN.format(1, -9), "Rank 1 was lost: it was ended by SIGKILL."),
        ("words\n" + RING + WARN.format(1, -9) + WARN.format(0, -15), "Rank 1 was lost: it was ended by SIGKILL. Its "
         "last words: words."),
        (RING + WARN.format(0, 3) + WARN.format(2, -11), "Rank 2 on mac-2 was lost: it was ended by SIGSEGV."),
        ("rank 1: RuntimeError: no memory here\n" + RING + WARN.format(1, 1) + WARN.format(0, 3),
         "Rank 1 was lost: it ended with status 1. Its last words: RuntimeError: no memory here."),
        (WARN.format(0, -9) + WARN.format(1, -15), "The engine's process has ended: it was ended by SIGKILL."),
        (WARN.format(0, -14) + WARN.format(1, -15), "Rank 2 on mac-2 was lost: it gave no answer in its time."),
        (WARN.format(0, -14) + WARN.format(1, -15) + WARN.format(2, -15), "A rank was lost: it gave no answer in its "
         "time."),
        ("No module named mlx.\n", "The engine's process has ended: No module named mlx."),
        ("", "The engine's process has ended."),
    ],
)  # fmt: skip
def test_the_lost_rank_is_told_from_what_mlx_launch_says(text: str, said: str) -> None:
    hosts = RankHosts(tuple(RankHost(ssh, ("127.0.0.1",)) for ssh in ("127.0.0.1", "127.0.0.1", "mac-2")))
    assert hosts.ending(text, None) == said


def test_hosts_are_equal_where_their_ranks_are() -> None:
    assert (
        hosts_of(LoadSettings(ranks=2)) == hosts_of(LoadSettings(ranks=2)) != hosts_of(LoadSettings(ranks=3))
    )
    assert isinstance(hosts_of(LoadSettings(ranks=2)), RankHosts)


@pytest.mark.parametrize(
    ("model", "dtype", "scales"),
    [("llama:4bit", "float32", True), ("llama:4bit", "bfloat16", False), ("llama", "float32", False)],
)
def test_other_ranks_compute_scales_as_the_first_one_does(
    zoo: Zoo, model: str, dtype: Any, scales: bool
) -> None:
    settings = LoadSettings(str(zoo.path(model)), dtype=dtype)
    prepared = prepare(settings, lambda _: None, Event())
    others = handlers._for_others(prepared, settings)
    assert (others.float32_scales, others.dtype) == (scales, prepared.dtype)
