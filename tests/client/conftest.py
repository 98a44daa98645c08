from tests.support.targets import target

__all__ = ["target"]
