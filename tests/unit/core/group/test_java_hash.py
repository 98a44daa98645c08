from mainstem.core.group.java_hash import in_hash_map_order, partition_for, string_hash


def test_hashes_are_those_of_java() -> None:
    # Printed by Java 17: "".hashCode() and so on.
    assert string_hash("") == 0
    assert string_hash("group") == 98629247
    assert string_hash("polygenelubricants") == -(2**31)
    assert string_hash("\U0001f600") == 1772899


def test_the_smallest_hash_belongs_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("group", 50) == 98629247 % 50


def test_order_of_a_hash_map() -> None:
    names = ["roundrobin", "range", "cooperative-sticky", "sticky"]
    assert in_hash_map_order(names) == ["sticky", "range", "roundrobin", "cooperative-sticky"]
    many = in_hash_map_order(f"p{number}" for number in range(30))
    assert many[:15] == [*(f"p{number}" for number in range(11)), "p12", "p11", "p14", "p13"]
    assert in_hash_map_order([]) == []
