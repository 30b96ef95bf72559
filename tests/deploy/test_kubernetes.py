"""deploy/kubernetes without a cluster: what the manifests name is there, and fits the servers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.metrics.pages import PATHS

from .files import DATA, DEPLOY, check_server_words, check_settings, documents, settings_of

FOLDER: Final = DEPLOY / "kubernetes"
MANIFESTS: Final = [
    document
    for name in ("namesrv", "broker", "failover", "network-policy")
    for document in documents(FOLDER / f"{name}.yaml")
]

Manifest = dict[str, Any]


def of_kind(kind: str) -> list[Manifest]:
    return [each for each in MANIFESTS if each["kind"] == kind]


SETS: Final = of_kind("StatefulSet")
NAMES: Final = [each["metadata"]["name"] for each in SETS]


def named(kind: str, name: str) -> Manifest:
    (found,) = [each for each in of_kind(kind) if each["metadata"]["name"] == name]
    return found


def pod_of(manifest: Manifest) -> Manifest:
    pod: Manifest = manifest["spec"]["template"]["spec"]
    return pod


def file_of(name: str) -> tuple[str, str]:
    """Name and text of the file in the ConfigMap of a set."""
    ((file, text),) = named("ConfigMap", name)["data"].items()
    return file, text


def test_there_is_something_of_each_kind() -> None:
    assert NAMES == ["trocket-namesrv", "trocket-broker", "trocket-controller", "trocket-broker-a"]
    names = [(each["kind"], each["metadata"]["name"]) for each in MANIFESTS]
    assert len(set(names)) == len(names)
    resources = documents(FOLDER / "kustomization.yaml")[0]["resources"]
    assert all((FOLDER / name).is_file() for name in resources)


@pytest.mark.parametrize("manifest", SETS, ids=NAMES)
def test_names_of_a_set_fit_each_other(manifest: Manifest) -> None:
    name = manifest["metadata"]["name"]
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    wanted = {"app.kubernetes.io/name": name}
    assert wanted.items() <= labels.items()
    assert labels["app.kubernetes.io/part-of"] == "trocket"
    assert manifest["spec"]["selector"]["matchLabels"] == wanted
    assert manifest["spec"]["serviceName"] == name
    service = named("Service", name)["spec"]
    assert service["selector"] == wanted
    # Servers look each other up before they are ready.
    assert service["publishNotReadyAddresses"] is True
    assert service["clusterIP"] == "None"
    budgets = [each["metadata"]["name"] for each in of_kind("PodDisruptionBudget")]
    assert (name in budgets) == (manifest["spec"]["replicas"] > 1)
    if name in budgets:
        assert named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == wanted


@pytest.mark.parametrize("manifest", SETS, ids=NAMES)
def test_a_pod_has_no_rights_and_writes_its_volume_only(manifest: Manifest) -> None:
    pod = pod_of(manifest)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        claims = [each["metadata"]["name"] for each in manifest["spec"]["volumeClaimTemplates"]]
        volumes = [*claims, *(each["name"] for each in pod["volumes"])]
        assert all(each["name"] in volumes for each in container["volumeMounts"])
    (server,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in server["volumeMounts"]}
    assert mounts["data"] == DATA
    paths = settings_of(file_of(manifest["metadata"]["name"])[1]).values()
    assert any(path.startswith(f"{DATA}/") for path in paths)


@pytest.mark.parametrize("manifest", SETS, ids=NAMES)
def test_ports_and_probes_are_those_of_the_settings(manifest: Manifest) -> None:
    name = manifest["metadata"]["name"]
    (server,) = pod_of(manifest)["containers"]
    kind = check_server_words(server["args"])
    file, text = file_of(name)
    assert file == f"{kind}.conf"
    keys = settings_of(text)
    ports = {each["name"]: each["containerPort"] for each in server["ports"]}
    service = {each["name"]: each["port"] for each in named("Service", name)["spec"]["ports"]}
    assert ports == service
    port = int(keys["listenPort"])
    expected = {kind: port, "metrics": int(keys["metricsPromExporterPort"])}
    if kind == "broker":
        expected["vip"] = port - 2
    if "haListenAddress" in keys:
        expected["ha"] = port + 1
    assert ports == expected
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = server[probe]["httpGet"]
        assert asked["path"] in PATHS
        assert asked["path"].endswith("ready") == (probe == "readinessProbe")
        assert ports[asked["port"]] == expected["metrics"]


def written_by_init(manifest: Manifest, folder: Path) -> Path:
    """The file that the pod's first container makes of the ConfigMap's."""
    (container,) = pod_of(manifest)["initContainers"]
    shell, flags, script = container["command"]
    (folder / "broker.conf").write_text(file_of(manifest["metadata"]["name"])[1])
    out = folder / "own"
    out.mkdir()
    script = script.replace("/config", str(folder)).replace("/etc/trocket", str(out))
    variables = {each["name"] for each in container["env"]}
    assert variables == {"POD", "NAMESPACE"}
    environment = {"POD": f"{manifest['metadata']['name']}-1", "NAMESPACE": "shop"}
    subprocess.run([shell, flags, script], env=environment, check=True)
    return out / "broker.conf"


@pytest.mark.parametrize("name", NAMES)
def test_a_server_takes_the_settings_of_its_pod(name: str, tmp_path: Path) -> None:
    manifest = named("StatefulSet", name)
    file, text = file_of(name)
    path = tmp_path / file
    path.write_text(text, encoding="ascii")
    if "initContainers" in pod_of(manifest):
        path = written_by_init(manifest, tmp_path)
        keys = settings_of(path.read_text())
        assert keys["brokerIP1"] == f"{name}-1.{name}.shop.svc"
        # Brokers of one name are a set with a controller, and would take turns without one.
        assert (keys["brokerName"] == f"{name}-1") != ("controllerAddr" in keys)
    check_settings(file.partition(".")[0], path)


def test_servers_name_pods_that_there_are() -> None:
    for manifest in SETS:
        keys = settings_of(file_of(manifest["metadata"]["name"])[1])
        named_by = [keys.get("namesrvAddr", ""), keys.get("controllerAddr", "")]
        for pod, number, service, port in re.findall(
            r"([\w-]+)-(\d+)\.([\w-]+):(\d+)", ";".join(named_by)
        ):
            assert pod == service
            assert int(number) < named("StatefulSet", pod)["spec"]["replicas"]
            ports = [each["port"] for each in named("Service", service)["spec"]["ports"]]
            assert int(port) in ports
        if "namesrvAddr" in keys:
            count = named("StatefulSet", "trocket-namesrv")["spec"]["replicas"]
            assert keys["namesrvAddr"].count(";") == count - 1


def test_an_update_waits_until_a_new_name_server_knows_the_brokers() -> None:
    period_ms = BrokerConfig().register_name_server_period
    waited_s = named("StatefulSet", "trocket-namesrv")["spec"]["minReadySeconds"]
    assert waited_s * 1000 > period_ms


def test_the_policy_lets_in_what_servers_listen_on() -> None:
    (policy,) = of_kind("NetworkPolicy")
    labels = policy["spec"]["podSelector"]["matchLabels"]
    for manifest in SETS:
        there = manifest["spec"]["template"]["metadata"]["labels"]
        assert labels.items() <= there.items()
    among, clients, metrics = [
        {each["port"] for each in rule["ports"]} for rule in policy["spec"]["ingress"]
    ]
    served = {
        each["port"]: each["name"]
        for service in of_kind("Service")
        for each in service["spec"]["ports"]
    }
    assert metrics == {port for port, name in served.items() if name == "metrics"}
    assert among == served.keys() - metrics
    # The ports of slaves and controllers are not for clients.
    assert clients == {port for port in among if served[port] not in ("ha", "controller")}
