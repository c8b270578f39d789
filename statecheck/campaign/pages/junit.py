"""A conformance run as JUnit XML, which CI systems show as a list of tests."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from statecheck.campaign.record import CampaignRecord
from statecheck.execution.verdict import Status
from statecheck.util.text import brief, visible

_TITLE, _TEXT = 300, 4000
_KINDS = {
    Status.FALSIFIED.value: "failure",
    Status.UNEXPECTED_PASS.value: "failure",
    Status.ERROR.value: "error",
    Status.NOT_FINISHED.value: "error",
    Status.NOT_VERIFIED.value: "error",
    Status.NOT_APPLICABLE.value: "skipped",
    Status.NOT_TESTED.value: "skipped",
}
"""The child that the test of a property with that status has; the tests of others passed."""


def junit(record: CampaignRecord) -> str:
    """A test for each property, and for each model that cannot be verified; a falsified one has a failure for each bucket."""
    root = Element("testsuite", name="statecheck", timestamp=record.began, time=f"{record.seconds:.3f}")
    for row in record.properties:
        test = SubElement(root, "testcase", classname="statecheck", name=row.id, time=f"{row.seconds:.3f}")
        found = [one.message for one in record.buckets if one.property == row.id]
        kind = _KINDS.get(row.status)
        for message in found or ([row.detail] if kind is not None else []):
            child = SubElement(test, kind or "failure", message=brief(message, _TITLE), type=row.status)
            child.text = visible(message[:_TEXT])
    for model, why in record.unverified.items():
        test = SubElement(root, "testcase", classname="statecheck", name=f"model {model}", time="0.000")
        SubElement(test, "error", message=brief(why, _TITLE), type=Status.NOT_VERIFIED.value).text = visible(
            why[:_TEXT]
        )
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        root.set(name, str(sum(test.find(kind) is not None for test in root)))
    root.set("tests", str(len(root)))
    indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + tostring(root, encoding="unicode") + "\n"
