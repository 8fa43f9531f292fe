"""The authorization table: the right that each route requires. A route without a row fails a test.

A rule is a role, and what the token has to have: `ALL` the scope transfer:all, or no scope at all since an admin issued
the token (`issued`: only that). `timer` is the scope of Globus Timers. `seat` is a browser that has logged in. `open`
are routes for everybody.
"""

from collections.abc import Iterator

__all__ = ["rules"]

OWN = """
reader    GET    /sites
reader    GET    /sites/{name}
curator   PUT    /sites/{name}
curator   DELETE /sites/{name}
reader    GET    /endpoints
reader    GET    /endpoints/{name}
curator   PUT    /endpoints/{name}
curator   DELETE /endpoints/{name}
reader    GET    /depots
reader    GET    /depots/{name}
admin     PUT    /depots/{name}
admin     DELETE /depots/{name}
transfer  POST   /depots/{name}/legs
transfer  GET    /depots/{name}/forwarding
transfer  POST   /depot-tickets
reader    GET    /depot-routes
transfer  POST   /depot-routes
reader    GET    /collections
admin     GET    /collections/{name}
admin     PUT    /collections/{name}
admin     DELETE /collections/{name}
admin     GET    /collections/{name}/rules
admin     POST   /collections/{name}/rules
admin     DELETE /collections/{name}/rules/{number}
reader    GET    /datasets
reader    GET    /datasets/{name:path}
curator   PUT    /datasets/{name:path}
curator   DELETE /datasets/{name:path}
reader    GET    /replicas
curator   PUT    /replicas
curator   DELETE /replicas
reader    GET    /replicas/unconfirmed
transfer  POST   /replicas/confirm
transfer  POST   /replicas/bad
reader    GET    /replicas/resolve
reader    POST   /replicas/resolve
curator   POST   /import
reader    GET    /export
transfer  POST   /transfers
transfer  POST   /transfers/import
reader    GET    /transfers/export
reader    GET    /transfers
transfer  POST   /decisions
reader    GET    /forecasts
reader    POST   /forecasts
reader    POST   /plans
transfer  POST   /guarantees
reader    GET    /guarantees
reader    GET    /guarantees/{number}
transfer  POST   /guarantees/{number}/progress
transfer  POST   /guarantees/{number}/ended
transfer  DELETE /guarantees/{number}
transfer  POST   /tasks
reader    GET    /tasks
reader    GET    /tasks/{number}
transfer  POST   /tasks/{number}/cancel
reader    GET    /tasks/{number}/events
reader    GET    /tasks/{number}/files
reader    GET    /tasks/{number}/planned
reader    GET    /tasks/{number}/progress
reader    GET    /whoami
admin     GET    /tokens
issued    POST   /tokens
admin     DELETE /tokens/{number}
admin     GET    /audit
admin     GET    /ignored-subjects
admin     PUT    /ignored-subjects
admin     DELETE /ignored-subjects
reader    GET    /metrics
"""
OTHERS = """
open      GET    /healthz
open      GET    /readyz
open      GET    /metrics
open      GET    /ga4gh/drs/v1/service-info
reader    GET    /ga4gh/drs/v1/objects/{name:path}/access/{endpoint}
reader    GET    /ga4gh/drs/v1/objects/{name:path}
open      GET    /.well-known/openid-configuration
open      GET    /jwk.json
open      GET    /v2/oauth2/authorize
open      POST   /v2/oauth2/authorize
open      GET    /v2/web/login
open      GET    /v2/web/callback
open      GET    /v2/web/auth-code
open      POST   /v2/oauth2/token
open      POST   /v2/oauth2/token/revoke
open      POST   /v2/oauth2/token/validate
open      POST   /v2/oauth2/token/introspect
named     GET    /v2/oauth2/userinfo
open      POST   /v2/api/clients
open      GET    /v2/api/clients/{number}
open      DELETE /v2/api/clients/{number}
identities GET   /v2/api/identities
consents  GET    /v2/api/identities/{number}/consents
timer:transfer POST   /v2/timer
timer:transfer POST   /jobs/
timer:reader   GET    /jobs/
timer:reader   GET    /jobs/{job_id}
timer:transfer PATCH  /jobs/{job_id}
timer:reader   DELETE /jobs/{job_id}
timer:reader   POST   /jobs/{job_id}/pause
timer:transfer POST   /jobs/{job_id}/resume
open      GET    /reports/login
open      GET    /reports/login/done
open      GET    /reports/static/{name}
seat:reader  POST /reports/logout
seat:curator POST /reports/probes
seat:reader  GET  /reports
seat:reader  GET  /reports/overview/events
"""
GLOBUS = """
reader    GET    /submission_id
transfer  POST   /transfer
transfer  POST   /delete
reader    GET    /task_list
reader    GET    /task/{task_id}
transfer  PUT    /task/{task_id}
transfer  POST   /task/{task_id}/cancel
reader    GET    /task/{task_id}/event_list
reader    GET    /task/{task_id}/successful_transfers
reader    GET    /task/{task_id}/skipped_errors
reader    GET    /task/{task_id}/pause_info
reader    GET    /operation/endpoint/{endpoint_id}/ls
reader    GET    /operation/endpoint/{endpoint_id}/stat
transfer  POST   /operation/endpoint/{endpoint_id}/mkdir
transfer  POST   /operation/endpoint/{endpoint_id}/rename
reader    GET    /endpoint_search
reader    GET    /endpoint/{endpoint_id}
transfer  PUT    /endpoint/{endpoint_id}
reader    GET    /endpoint/{endpoint_id}/server_list
reader    POST   /endpoint/{endpoint_id}/autoactivate
reader    GET    /endpoint/{endpoint_id}/my_effective_pause_rule_list
reader    GET    /endpoint/{endpoint_id}/role_list
reader    GET    /endpoint/{endpoint_id}/access_list
transfer  POST   /endpoint/{endpoint_id}/access
reader    GET    /endpoint/{endpoint_id}/access/{rule_id}
transfer  PUT    /endpoint/{endpoint_id}/access/{rule_id}
transfer  DELETE /endpoint/{endpoint_id}/access/{rule_id}
transfer  POST   /endpoint
transfer  POST   /shared_endpoint
transfer  DELETE /endpoint/{endpoint_id}
reader    GET    /endpoint/{endpoint_id}/my_shared_endpoint_list
reader    GET    /endpoint/{endpoint_id}/shared_endpoint_list
transfer  PUT    /endpoint/{endpoint_id}/subscription
transfer  PUT    /endpoint/{endpoint_id}/subscription_admin_verified
transfer  POST   /endpoint/{endpoint_id}/role
transfer  GET    /endpoint/{endpoint_id}/role/{role_id}
transfer  DELETE /endpoint/{endpoint_id}/role/{role_id}
reader    GET    /bookmark_list
transfer  POST   /bookmark
reader    GET    /bookmark/{bookmark_id}
transfer  PUT    /bookmark/{bookmark_id}
transfer  DELETE /bookmark/{bookmark_id}
admin     GET    /endpoint_manager/task_list
admin     GET    /endpoint_manager/task/{task_id}
admin     GET    /endpoint_manager/task/{task_id}/event_list
admin     GET    /endpoint_manager/task/{task_id}/successful_transfers
admin     GET    /endpoint_manager/task/{task_id}/skipped_errors
admin     GET    /endpoint_manager/task/{task_id}/pause_info
admin     POST   /endpoint_manager/admin_cancel
admin     GET    /endpoint_manager/admin_cancel/{admin_cancel_id}
admin     POST   /endpoint_manager/admin_pause
admin     POST   /endpoint_manager/admin_resume
admin     GET    /endpoint_manager/monitored_endpoints
admin     GET    /endpoint_manager/endpoint/{endpoint_id}
admin     GET    /endpoint_manager/endpoint/{endpoint_id}/access_list
admin     GET    /endpoint_manager/pause_rule_list
admin     POST   /endpoint_manager/pause_rule
admin     GET    /endpoint_manager/pause_rule/{pause_rule_id}
admin     PUT    /endpoint_manager/pause_rule/{pause_rule_id}
admin     DELETE /endpoint_manager/pause_rule/{pause_rule_id}
"""
NOT_OFFERED = """
/v2/groups
/v2/groups/{rest:path}
/v2/preferences
/v2/subscription_info/{rest:path}
/v2/tunnels
/v2/tunnels/{rest:path}
/v2/stream_access_points
/v2/stream_access_points/{rest:path}
/flows
/flows/{rest:path}
/runs
/runs/{rest:path}
/registered_apis
/registered_apis/{rest:path}
/web_inputs
/web_inputs/{rest:path}
/v1/{rest:path}
"""
"""Paths of Globus services that the broker does not offer."""
ALL_READ = "overview tasks grid drift forecasters regret promises depots decisions replicas pair task transfer"
REPORTS = {"reader": ALL_READ.split(), "admin": ["audit"]}


def rules() -> dict[tuple[str, str], str]:
    """The rule of each route, by method and path."""
    return dict(_rows())


def _rows() -> Iterator[tuple[tuple[str, str], str]]:
    for prefixes, table in ((("/broker/v1", "/v0.10/broker/v1"), OWN), (("",), OTHERS), (("/v0.10",), GLOBUS)):
        for rule, method, path in map(str.split, table.strip().splitlines()):
            for prefix in prefixes:
                yield (method, f"{prefix}{path}"), rule
    for path in NOT_OFFERED.split():
        yield from (((method, path), "open") for method in ("GET", "POST", "PUT", "PATCH", "DELETE"))
    for role, names in REPORTS.items():
        for name in names:
            for prefix in ("/broker/v1/reports", "/v0.10/broker/v1/reports"):
                yield ("GET", f"{prefix}/{name}"), role
                yield ("GET", f"{prefix}/{name}/{{part}}.csv"), role
            for path in ("", ".json", *(f"/{{part}}.{kind}" for kind in ("csv", "json", "svg", "png"))):
                yield ("GET", f"/reports/{name}{path}"), f"seat:{role}"
