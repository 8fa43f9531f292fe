"""Attribution of actions in tasks, audit log, logs and metrics, with the caller's address."""

import json

import httpx
import pytest
from structlog.testing import capture_logs

from broker.config.settings import Settings, configured
from broker.errors import Invalid
from broker.models.callers import NewToken
from tests.broker.services.auth.test_tokens import _waiting
from tests.support.broker import broker_in
from tests.support.waiting import PATIENCE

ACTS = [
    ("POST", "/broker/v1/tasks/{}/cancel", None, "CANCELED", "cancel task"),
    ("POST", "/v0.10/broker/v1/tasks/{}/cancel", None, "CANCELED", "cancel task"),
    ("POST", "/v0.10/task/{}/cancel", None, "CANCELED", "cancel task"),
    ("PUT", "/v0.10/task/{}", {"label": "another"}, "CHANGED", "change task"),
    ("POST", "/v0.10/endpoint_manager/admin_cancel", {"message": "why"}, "CANCELED", "cancel task"),
    ("POST", "/v0.10/endpoint_manager/admin_pause", {"message": "why"}, "PAUSED", "pause task"),
]


@pytest.mark.parametrize(("method", "path", "body", "code", "action"), ACTS)
async def test_actions_of_admins_are_in_events_and_the_audit_log(broker, admin, method, path, body, code, action):
    number = await _waiting(broker, "ann")
    content = {**(body or {}), "task_id_list": [number]} if "manager" in path else body
    answer = await admin.request(method, path.format(number), json=content)
    assert answer.status_code == 200, answer.text
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))
    ann = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    own = (await ann.get(f"/broker/v1/tasks/{number}/events")).json()["events"]
    assert code in {each["code"] for each in own}
    globus = (await ann.get(f"/v0.10/task/{number}/event_list")).json()["DATA"]
    assert code in {each["code"] for each in globus}
    assert "owner" not in own[0]["details"]
    (entry,) = [each for each in (await admin.get("/broker/v1/audit")).json()["entries"] if each["action"] == action]
    assert (entry["subject"], entry["thing"]) == ("a-admin", number)


async def test_actions_of_owners_are_not_in_the_audit_log(broker, admin):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="transfer"))
    ann = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    number = await _waiting(broker, "ann")
    assert (await ann.put(f"/v0.10/task/{number}", json={"label": "mine"})).status_code == 200
    assert (await ann.post(f"/v0.10/task/{number}/cancel")).status_code == 200
    events = (await ann.get(f"/broker/v1/tasks/{number}/events")).json()["events"]
    assert [(each["code"], each["details"]) for each in events] == [("CANCELED", "canceled by its owner")]
    actions = {each["action"] for each in (await admin.get("/broker/v1/audit")).json()["entries"]}
    assert not actions & {"cancel task", "change task"}


@pytest.mark.parametrize("prefix", ["", "/v0.10"])
async def test_logs_and_metrics_have_the_route_and_the_number_of_the_token(broker, prefix):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject="ann", role="curator"))
    ann = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    with capture_logs() as logged:
        await ann.get(f"{prefix}/broker/v1/datasets/a/b/c")
        await ann.get(f"{prefix}/broker/v1/tokens")
        await broker.with_headers({"Authorization": "Bearer cogetb_none"}).get(f"{prefix}/broker/v1/tokens")
    shown = [(each["route"], each["token"], each["status"]) for each in logged if each["event"] == "request"]
    assert shown == [
        (f"{prefix}/broker/v1/datasets/{{name:path}}", issued.id, 404),
        (f"{prefix}/broker/v1/tokens", issued.id, 403),
        (f"{prefix}/broker/v1/tokens", None, 401),
    ]
    assert issued.token not in json.dumps(logged, default=str)
    metrics = (await ann.get("/metrics")).text
    assert f'route="{prefix}/broker/v1/datasets/{{name:path}}"' in metrics
    assert f'coget_broker_token_requests_total{{token="{issued.id}"}} 2.0' in metrics


def _wrong(url: str, address: str = "127.0.0.1", times: int = 22, **headers: str) -> int:
    """Return the last status after this many wrong secrets from this address."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address), base_url=url, timeout=PATIENCE) as client:
        for _ in range(times):
            form = {"grant_type": "client_credentials", "client_id": "x", "client_secret": "y"}
            status = client.post("/v2/oauth2/token", data=form, headers=headers).status_code
    return status


def test_no_proxy_is_trusted_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with broker_in(tmp_path) as broker:
        assert _wrong(broker.url, **{"X-Forwarded-For": "192.0.2.1"}) == 429
        assert _wrong(broker.url, "127.0.0.1", 1, **{"X-Forwarded-For": "192.0.2.2"}) == 429


@pytest.mark.parametrize("setting", ['trusted = "all"', 'trusted = ["proxy.example"]', "on = true", 'trusted = ["*"]'])
def test_an_invalid_proxy_is_refused(tmp_path, setting):
    config = tmp_path / "broker.toml"
    config.write_text(f"[proxy]\n{setting}\n")
    config.chmod(0o600)
    with pytest.raises(Invalid, match=r"\[proxy\]"):
        configured(Settings(), config)
