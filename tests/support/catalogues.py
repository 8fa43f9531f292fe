"""Documents of catalogues of one file, CONTENT, in their documented forms, by path."""

import hashlib

__all__ = ["CONTENT", "DOI", "ID", "MD5", "SEARCH", "SHA256", "drs_object", "esgf", "zenodo"]

CONTENT = b"what the file has" * 1000
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
DOI = "10.5281/zenodo.77"
ID = "CMIP6.X.v1"
SEARCH = (
    "/s?format=application%2Fsolr%2Bjson&distrib=true&fields=id%2Ctitle%2Csize%2Cchecksum%2Cchecksum_type%2Curl"
    "&limit=500&offset=0&type="
)


def zenodo(url, *files):
    entries = [
        {"key": name, "size": len(CONTENT), "checksum": f"md5:{md5}", "links": {"self": url + path}}
        for name, path, md5 in files
    ]
    return {
        f"/dois/{DOI}": {"data": {"attributes": {"url": f"{url}/records/77"}}},
        "/api/records/77": {"id": 77, "files": entries},
    }


def drs_object(value=SHA256, kind="sha-256"):
    return {
        "id": "1", "name": "y.nc", "size": len(CONTENT), "checksums": [{"type": kind, "checksum": value}],
        "access_methods": [{"type": "https", "access_id": "a"}, {"type": "s3", "access_url": {"url": "s3://b/x"}}],
    }  # fmt: skip


def esgf(url, *copies):
    docs = [
        {
            "title": "x.nc",
            "size": len(CONTENT),
            "checksum": [value],
            "checksum_type": ["SHA256"],
            "url": [f"{place}|application/netcdf|HTTPServer", f"{url}/bad|application/opendap-html|OPENDAP"],
        }
        for place, value in copies
    ]
    return {
        f"{SEARCH}Dataset&instance_id={ID}": {"response": {"numFound": 1, "docs": [{"id": f"{ID}|n"}]}},
        f"{SEARCH}File&dataset_id={ID}%7Cn": {"response": {"numFound": len(docs), "docs": docs}},
    }
