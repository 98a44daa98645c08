"""What Kafka does by a property of Java, and everybody who speaks to it must do alike."""


def string_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, in 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_partition(key: str, partitions: int) -> int:
    """Which partition of an internal topic a group or transactional id belongs to."""
    value = string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions


def split_list(text: str) -> list[str]:
    """`String.split(",")`: empty parts at the end are left out, those before are not, and nothing is one empty part."""
    parts = text.split(",")
    if len(parts) > 1:
        while parts and not parts[-1]:
            parts.pop()
    return parts
