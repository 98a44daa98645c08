"""The content of control records: what ends a transaction, and what the metadata quorum writes into its log.

The key of a control record is its version (int16) and a `ControlRecordType`; the value is one of the others.
"""

from __future__ import annotations

from mainstem.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Str, Struct, Uint16, Uuid, field


class ControlRecordType(Message, versions="0", flexible="none"):
    type: Int16 = field("0+")


class EndTxnMarker(Message, versions="0", flexible="none"):
    coordinator_epoch: Int32 = field("0+")


class Voter(Struct):
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: Int16 = field("0+")
    leader_id: Int32 = field("0+")
    voters: list[Voter] = field("0+")
    granting_voters: list[Voter] = field("0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")
    last_contained_log_timestamp: Int64 = field("0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")
    kraft_version: Int16 = field("0+")


class Endpoint(Struct):
    name: Str = field("0+")
    host: Str = field("0+")
    port: Uint16 = field("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: Int16 = field("0+")
    max_supported_version: Int16 = field("0+")


class VotersVoter(Struct):
    voter_id: Int32 = field("0+")
    voter_directory_id: Uuid = field("0+")
    endpoints: list[Endpoint] = field("0+")
    kraft_version_feature: KRaftVersionFeature = field("0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: Int16 = field("0+")
    voters: list[VotersVoter] = field("0+")
