"""Finalized features: UpdateFeatures, and what a new cluster begins with (KIP-584, KIP-778).

An update is all or nothing. A level rises by an upgrade and falls only when the request says that it may; the levels
of `metadata.version` never fall here, because older records could not hold what is there (Kafka's rule for the levels
it could lose something at, kept for all of them). Levels that no registered node supports are refused.
"""

from __future__ import annotations

from mainstem.core.controller import versions
from mainstem.core.controller.context import ELR_VERSION, MIN_INSYNC_REPLICAS, SUPPORTED_FEATURES, Context, Decision
from mainstem.core.controller.image import BROKER
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from mainstem.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from mainstem.protocol.schema import Message

KRAFT_VERSION = "kraft.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

DEFAULT_FEATURES = {
    versions.METADATA_VERSION: versions.METADATA_VERSION_LATEST,
    ELR_VERSION: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""What a fresh directory of Kafka 4.3 finalizes, in its order; `kraft.version` is a control record instead."""


def update_features(context: Context, request: UpdateFeaturesRequest, version: int) -> Decision:
    wanted: dict[str, FeatureUpdateKey] = {one.feature: one for one in request.feature_updates}
    records: list[Message] = []
    try:
        for update in wanted.values():
            records += _update(context, update, version)
    except RemoteError as error:
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return Decision(UpdateFeaturesResponse(error_code=error.code, error_message=message))
    results = []
    if version <= 1:
        # Kafka gives the name of the error as its message, also when there is none.
        results = [
            UpdatableFeatureResult(feature=one.feature, error_code=ErrorCode.NONE, error_message="NONE")
            for one in request.feature_updates
        ]
    answer = UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)
    return Decision(answer, [] if request.validate_only else records)


def _update(context: Context, update: FeatureUpdateKey, version: int) -> list[Message]:
    name, level = update.feature, update.max_version_level
    # Before v1 there was one flag for downgrades; Kafka treats a set one as safe only when decoding v0 says so.
    upgrade_type = update.upgrade_type if version >= 1 else UPGRADE
    current = context.kraft_version if name == KRAFT_VERSION else context.image.features.get(name, 0)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refused(name, level, "A feature version cannot be less than 0.")
    if name not in SUPPORTED_FEATURES:
        raise _refused(name, level, f"Local controller {context.settings.node_id} does not support this feature.")
    low, high = SUPPORTED_FEATURES[name]
    if not low <= level <= high:
        raise _refused(name, level, f"Local controller {context.settings.node_id} only supports versions {low}-{high}")
    _check_nodes(context, name, level)
    if name == KRAFT_VERSION:
        if level < current:
            raise _refused(name, level, "Can't downgrade the version of this feature.")
        if level > current:
            raise _refused(name, level, "The voters of this quorum are static; it cannot be upgraded yet.")
        return []
    if level < current:
        _check_downgrade(name, level, current, upgrade_type)
    elif level > current and upgrade_type != UPGRADE:
        raise _refused(name, level, "Can't downgrade to a newer version.")
    records: list[Message] = [FeatureLevelRecord(name=name, feature_level=level)]
    if name == ELR_VERSION and level > 0:
        records += elr_config(context)
    return records


def _check_nodes(context: Context, name: str, level: int) -> None:
    nodes = [("Broker", one, broker.features) for one, broker in context.image.brokers.items()]
    for kind, node_id, features in nodes:
        found = features.get(name)
        if found is None and level == 0:
            continue
        if found is None or not found.min_supported_version <= level <= found.max_supported_version:
            raise _refused(name, level, f"{kind} {node_id} does not support this version.")


def _check_downgrade(name: str, level: int, current: int, upgrade_type: int) -> None:
    if upgrade_type == UPGRADE:
        raise _refused(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if name == versions.METADATA_VERSION:
        why = "Refusing to perform the requested downgrade because it might delete metadata information."
        if upgrade_type == UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        raise RemoteError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
        )


def _refused(name: str, level: int, why: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}")


def elr_config(context: Context) -> list[Message]:
    """With eligible leader replicas on, `min.insync.replicas` is the cluster's: the node's own value moves there."""
    if MIN_INSYNC_REPLICAS in context.image.config(BROKER, ""):
        return []
    value = str(context.settings.log_defaults.min_insync_replicas)
    return [ConfigRecord(resource_type=BROKER, resource_name="", name=MIN_INSYNC_REPLICAS, value=value)]
