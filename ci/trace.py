#!/usr/bin/env python3
"""Reads a timeline with Perfetto's own schema (PyPI's package perfetto) and tells what is in it: trace.py FILE.

Fails where something is unknown to the schema, slices of a track do not nest, an arrow has not two ends, or a name or a
track is used that was not told before.
"""
import collections
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent
from google.protobuf.unknown_fields import UnknownFieldSet

trace = Trace()
with open(sys.argv[1], "rb") as file:
    data = file.read()
trace.ParseFromString(data)
assert not len(UnknownFieldSet(trace))

tracks, names, categories, notes = {}, {}, {}, {}
open_slices = collections.defaultdict(list)
last = collections.defaultdict(int)
flows = collections.defaultdict(list)
seen = collections.Counter()
for packet in trace.packet:
    for message in (packet, packet.track_event, packet.track_descriptor, packet.interned_data):
        assert not len(UnknownFieldSet(message)), message
    if packet.HasField("interned_data"):
        assert packet.sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        names.update((entry.iid, entry.name) for entry in packet.interned_data.event_names)
        categories.update((entry.iid, entry.name) for entry in packet.interned_data.event_categories)
        notes.update((entry.iid, entry.name) for entry in packet.interned_data.debug_annotation_names)
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks
        assert not track.parent_uuid or track.parent_uuid in tracks
        tracks[track.uuid] = track
        for kind in ("process", "thread", "counter"):
            seen[kind + " tracks"] += track.HasField(kind)
    if not packet.HasField("track_event"):
        continue
    event, now = packet.track_event, packet.timestamp
    assert event.track_uuid in tracks
    assert last[event.track_uuid] <= now
    last[event.track_uuid] = now
    stack = open_slices[event.track_uuid]
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        stack.append(event)
        seen["slices"] += 1
        seen["deepest"] = max(seen["deepest"], len(stack))
        assert event.name_iid in names or event.name
        assert all(iid in categories for iid in event.category_iids)
    elif event.type == TrackEvent.TYPE_SLICE_END:
        stack.pop()
    elif event.type == TrackEvent.TYPE_COUNTER:
        seen["counts"] += 1
    elif event.type == TrackEvent.TYPE_INSTANT:
        seen["instants"] += 1
    assert all(note.name_iid in notes for note in event.debug_annotations)
    seen["annotations"] += len(event.debug_annotations)
    for flow in event.flow_ids:
        flows[flow].append((now, event.type))
assert not any(open_slices.values())
for ends in flows.values():
    kinds = sorted(kind for _, kind in ends)
    assert kinds == [TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END], ends
seen["arrows"] = len(flows)
seen["packets"] = len(trace.packet)
print(f"{sys.argv[1]}: {len(data)} bytes;", ", ".join(f"{n} {what}" for what, n in sorted(seen.items())))
