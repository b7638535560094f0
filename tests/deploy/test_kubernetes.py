"""The manifests: valid by their schemas, one with another, and with what the commands they start say of themselves."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import yaml

from holdfast.server.ui import sessions
from holdfast.wire.scaling import ScaleAnswer, ScaleQuery
from tests.deploy import keda
from tests.deploy.files import DEPLOY, kind, objects, of_kubernetes, pods

OLDEST, NEWEST = "1.32", "1.37"
SCALER = {"url", "valueLocation", "targetValue", "authMode"}
"""What of the metadata of a trigger the scaler `metrics-api` reads and we need: the schema of KEDA takes any words there."""
OURS = [one for one in objects() if one["apiVersion"].startswith("keda.sh")]
THEIRS = [one for one in objects() if not one["apiVersion"].startswith("keda.sh")]


def named(one: object) -> str:
    return f"{one['kind']}-{one['metadata']['name']}" if isinstance(one, dict) else str(one)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("one", THEIRS, ids=named)
def test_an_object_is_valid_by_the_schemas_of_kubernetes(one: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("one", OURS, ids=named)
def test_an_object_of_keda_is_valid_by_its_schema(one: dict[str, Any]) -> None:
    jsonschema.validate(one, keda.schema(one["kind"]), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "change",
    [
        {"maxReplicas": 3},
        {"pollingInterval": "10"},
        {"triggers": [{"type": "metrics-api"}]},
        {"triggers": [{"type": "metrics-api", "metadata": {"targetValue": 1}}]},
        {"triggers": [{"type": "metrics-api", "metadata": {}, "metricsType": "AverageValue"}]},
        {"fallback": {"replicas": 4}},
        {"advanced": {"horizontalPodAutoscaler": {}}},
    ],
    ids=str,
)
def test_the_schema_of_keda_refuses_what_keda_would_not_understand(change: dict[str, Any]) -> None:
    scaled = kind("ScaledObject")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(scaled | {"spec": scaled["spec"] | change}, keda.schema("ScaledObject"))


def test_the_behavior_that_keda_passes_on_is_valid_by_the_schema_of_an_autoscaler() -> None:
    behavior = kind("ScaledObject")["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    hpa = kind("HorizontalPodAutoscaler")
    kubernetes_validate.validate(hpa | {"spec": hpa["spec"] | {"behavior": behavior}}, NEWEST, strict=True)


def test_everything_is_in_the_namespace_which_takes_only_the_restricted() -> None:
    space = kind("Namespace")["metadata"]
    assert space["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert {one["metadata"]["namespace"] for one in objects() if one["kind"] != "Namespace"} == {space["name"]}


@pytest.mark.parametrize("pod", pods())
def test_a_pod_is_nobody_and_may_do_nothing_that_it_need_not(pod: str) -> None:
    spec = pods()[pod]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == 10001  # as in the Dockerfile
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == set(container["resources"])
    assert "command" not in container, "the entry point of the image is the command"


@pytest.mark.parametrize("pod", pods())
def test_secrets_are_taken_by_reference(pod: str) -> None:
    (container,) = pods()[pod]["containers"]
    for one in container["env"]:
        if one["name"] in ("HOLDFAST_URL", "HOLDFAST_ADMIN_SECRET", "HOLDFAST_KEY"):
            assert one["valueFrom"]["secretKeyRef"]["name"] == "holdfast"
    assert not [one for one in objects() if one["kind"] == "Secret"]


@pytest.mark.parametrize(("pod", "variable"), [("holdfast-server", "HOLDFAST_PORT"), ("holdfast-worker", "HOLDFAST_HEALTH")])
def test_probes_ask_the_port_that_is_listened_on(pod: str, variable: str) -> None:
    (container,) = pods()[pod]["containers"]
    (port,) = container["ports"]
    assert of_kubernetes(pod).environment[variable].rpartition(":")[2] == str(port["containerPort"])
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["port"] for probe in paths.values()} == {port["name"]}
    assert [probe["path"] for probe in paths.values()] == ["/health/live", "/health/live", "/health/ready"]


def test_the_service_leads_to_the_server() -> None:
    spec = kind("Service")["spec"]
    labels = kind("Deployment", "holdfast-server")["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    (container,) = pods()["holdfast-server"]["containers"]
    assert spec["ports"][0]["targetPort"] in [port["name"] for port in container["ports"]]


def test_who_has_logged_in_stays_with_the_server_that_knows_it() -> None:
    spec = kind("Service")["spec"]
    assert kind("Deployment", "holdfast-server")["spec"]["replicas"] > 1
    assert spec["sessionAffinity"] == "ClientIP"
    assert spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"] >= sessions.LONGEST


@pytest.mark.parametrize("name", ["holdfast-server", "holdfast-worker"])
def test_a_disruption_budget_covers_the_pods_and_never_stops_the_drain_of_a_node(name: str) -> None:
    spec = kind("PodDisruptionBudget", name)["spec"]
    deployment = kind("Deployment", name)["spec"]
    assert spec["selector"] == deployment["selector"]
    if "minAvailable" in spec:
        assert spec["minAvailable"] < deployment["replicas"]
    else:
        assert spec["maxUnavailable"] >= 1


def test_a_worker_has_longer_to_stop_than_it_takes() -> None:
    assert pods()["holdfast-worker"]["terminationGracePeriodSeconds"] > of_kubernetes("holdfast-worker").drain


def test_new_workers_serve_before_old_ones_are_asked_to_stop() -> None:
    for name in ("holdfast-server", "holdfast-worker"):
        assert kind("Deployment", name)["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


# -- scaling ---------------------------------------------------------------------------------------------------------------


def test_an_autoscaler_decides_alone_how_many_workers_there_are() -> None:
    assert "replicas" not in kind("Deployment", "holdfast-worker")["spec"]
    assert kind("ScaledObject")["spec"]["scaleTargetRef"]["name"] == "holdfast-worker"
    assert kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] == "holdfast-worker"


def test_keda_asks_the_server_for_a_field_that_it_tells_with_the_slots_of_a_worker() -> None:
    (trigger,) = kind("ScaledObject")["spec"]["triggers"]
    url = urlsplit(trigger["metadata"]["url"])
    service = kind("Service")
    assert url.hostname == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert url.port == service["spec"]["ports"][0]["port"]
    assert url.path == "/api/v1/scale"
    query = parse_qs(url.query)
    assert set(query) <= set(ScaleQuery.__struct_fields__)
    assert query["slots"] == [of_kubernetes("holdfast-worker").environment["HOLDFAST_CONCURRENCY"]]
    assert trigger["metadata"]["valueLocation"] in ScaleAnswer.__struct_fields__
    assert set(trigger["metadata"]) == SCALER
    assert trigger["authenticationRef"]["name"] == kind("TriggerAuthentication")["metadata"]["name"]
    (secret,) = kind("TriggerAuthentication")["spec"]["secretTargetRef"]
    assert (trigger["metadata"]["authMode"], secret["parameter"]) == ("bearer", "token")


def test_both_autoscalers_want_the_same_number_of_workers() -> None:
    (trigger,) = kind("ScaledObject")["spec"]["triggers"]
    (metric,) = kind("HorizontalPodAutoscaler")["spec"]["metrics"]
    query = parse_qs(urlsplit(trigger["metadata"]["url"]).query)
    assert float(metric["external"]["target"]["averageValue"]) == int(query["slots"][0]) * float(query["target"][0])


@pytest.mark.parametrize("matchers", ["", 'queue="mail"', 'queue=~"mail|video",task="greet"'])
def test_the_rule_of_the_adapter_is_a_query_that_prometheus_understands(matchers: str) -> None:
    (rule,) = yaml.safe_load((DEPLOY / "prometheus" / "adapter.yml").read_text())["rules"]["external"]
    (metric,) = kind("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    query = promql_parser.parse(rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers))
    names = ("holdfast_jobs", "holdfast_backlog_ready")
    assert [name for name in names if f"{name}{{" in str(query)] == list(names)
